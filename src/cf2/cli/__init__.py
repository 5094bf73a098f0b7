"""The command line: thin commands that call the library and print what it returns."""
