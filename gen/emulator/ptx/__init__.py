"""PTX text to plain data: `parse` makes a `module` of instructions with `operands`; `inline` and
`lower` leave simpler ones.
"""
