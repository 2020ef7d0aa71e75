# Comments of a C header as Doxygen wants them: /** before a declaration, /**< behind one; headings are left out.
s|^/\* ---- .* ----.*\*/$||
1s|^/\* mgpu.h: |/** \\file mgpu.h\n * |
s|^( *)/\* |\1/** |
/^#/!s|([,;{]) +/\* (.*) \*/$|\1 /**< \2 */|
/^#/!s|([A-Za-z0-9_]) +/\* (.*) \*/$|\1 /**< \2 */|
