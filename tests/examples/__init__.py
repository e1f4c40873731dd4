"""The examples whose files are committed: is what they compute right?"""
