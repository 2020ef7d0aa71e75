std = "luajit"
max_line_length = 120
cache = false
ignore = { "581" } -- "not (a <= b)" is intended: unlike a > b it is true for NaN
exclude_files = { "build" }
