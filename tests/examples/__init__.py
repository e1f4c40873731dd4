"""The examples that compute something: is it right?"""
