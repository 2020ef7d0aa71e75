std = "luajit"
max_line_length = 120
cache = false
ignore = { "581" } -- not (a <= b) is meant: true for NaN
exclude_files = { "build", "tests/golden/*" } -- the golden files are data
