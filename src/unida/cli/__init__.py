"""The command line: one file a command, and all that is printed.

A command is added in one place, `main.COMMANDS`. Library code logs; it never prints.
"""
