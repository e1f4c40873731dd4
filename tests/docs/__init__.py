"""The pages: their outputs, examples, links, pictures and options are those of the commands."""
