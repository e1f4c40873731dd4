"""Scripts for a GPU: is the emulator right, is `gen bench` right, are two versions alike?"""
