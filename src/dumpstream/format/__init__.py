"""CANN's bytes and names: headers, data types, layouts, file names, overflow records. Does no I/O."""
