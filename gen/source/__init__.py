"""From a specification to text: `render` is the only user of Jinja; `cpp/` makes what C and C++
projects take.
"""
