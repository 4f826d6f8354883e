"""Two directories of dump files, paired and compared as columns: many small files with one native call."""
