-- The cases of the ops along an axis: entries picked, ordered, scanned. See rows.lua.
return function(case, bad, FLOATS, ALL)
  for _, c in ipairs { { { 3, 5 }, { 3, 4 }, 2 }, { { 5, 3 }, { 4, 3 }, 1 }, { { 5, 3, 2 }, { 7, 1, 1 }, 1 },
    { { 2, 5, 3 }, { 2, 4, 1 }, 2 }, { { 2, 5, 3 }, { 2, 4, 3 }, 2 }, { { 5 }, { 3 }, 1 },
    { { 2, 6, 7, 9 }, { 2, 3, 7, 9 }, 2 },
    { { 0, 5 }, { 0, 4 }, 2 }, { { 3, 5 }, { 3, 0 }, 2 } } do
    local x, ids, axis = c[1], c[2], c[3]
    local dy = { unpack(x) }
    dy[axis] = ids[axis]
    case { "take_along_axis", { x, -1, 1 }, { ids, ints = x[axis] }, axis = axis }
    case { "scatter_along_axis", { dy, -1, 1 }, { ids, ints = x[axis] }, axis = axis, size = x[axis], tol = 5e-6,
      why = "equal ids: sums in another order" }
  end
  for _, as in ipairs { "uint8", "int32", "int64" } do
    case { "take_along_axis", { { 20, 70, 40 }, -3, 300 }, { { 20, 90, 40 }, ints = 70 }, axis = 2, as = as,
      dtypes = ALL, grad = false }
    case { "scatter_along_axis", { { 20, 90, 70 }, -1, 1 }, { { 20, 90, 1 }, ints = 70 }, axis = 2, size = 70, as = as,
      grad = false, tol = 5e-6, why = "equal ids: sums in another order" }
  end
  case { "take_along_axis", { { 3, 9 }, -3, 300 }, { { 3, 5 }, choose = { 0, 9, -1, 8 } }, axis = 2, as = "int32",
    dtypes = ALL, grad = false }
  case { "take_along_axis", { { 3, 0 }, -3, 300 }, { { 3, 5 }, ints = 1 }, axis = 2, grad = false }
  case { "scatter_along_axis", { { 3, 5 }, -1, 1 }, { { 3, 5 }, choose = { 0, 9, -1, 8 } }, axis = 2, size = 9,
    grad = false }
  case { "scatter_along_axis", { { 30, 5 }, ints = 90 }, { { 30, 5 }, ints = 5 }, axis = 2, size = 5 }
  case { "scatter_last", { { 9 }, ints = 6 }, size = 6 }
  case { "scatter_last", { { 9 }, choose = { 0, 9, -1, 8 } }, size = 9 }
  case { "scatter_last", { { 0 }, ints = 6 }, size = 3 }
  case { "scatter_last", { { 3000 }, ints = 200 }, size = 250, as = "uint8" }
  for _, shape in ipairs { { 7 }, { 5, 39 }, { 6, 41, 3 }, { 300, 2 }, { 3, 0, 2 }, { 0, 4 } } do
    for axis = 1, #shape do
      for _, descending in ipairs { false, true } do
        case { "argsort", { shape, -3, 300 }, axis = axis, descending = descending, dtypes = ALL, grad = false }
        case { "argsort", { shape, choose = { 1, 0 / 0, -0.5, 0, 1 / 0, -1 / 0, 1, 0 / 0, 0 * -1 } }, axis = axis,
          descending = descending, dtypes = FLOATS, grad = false }
        if shape[axis] > 2 then
          case { "argsort", { shape, choose = { 1, 0 / 0, -3, 0, 7, 1, 2 } }, axis = axis, descending = descending,
            count = 2, dtypes = FLOATS, grad = false }
        end
      end
    end
  end
  case { "argsort", { { 3, 20000 }, -1, 1 }, grad = false }
  case { "argsort", { { 3, 20000 }, choose = { 1, 2, 0 / 0, 3, 2 } }, count = 70, descending = true, dtypes = FLOATS,
    grad = false }
  local SCANNED = { tol = 1e-5, why = "products and sums of rounded terms" }
  for _, c in ipairs { { { 7 }, 1 }, { { 3, 5 }, 2 }, { { 4, 3, 2 }, 1 }, { { 2, 1, 3 }, 2 }, { { 3, 0 }, 2 } } do
    case { "linear_scan", { c[1], -1, 1 }, { c[1], -1, 1 }, axis = c[2], tol = SCANNED.tol, why = SCANNED.why }
  end
  case { "linear_scan", { { 5, 130, 70 }, -0.9, 0.9 }, { { 5, 130, 70 }, -1, 1 }, axis = 2, tol = SCANNED.tol,
    why = SCANNED.why, grad = false }
  case { "linear_scan", { { 40, 600 }, -0.9, 0.9 }, { { 40, 600 }, -1, 1 }, axis = 2, tol = SCANNED.tol,
    why = SCANNED.why, grad = false }
  case { "linear_scan", { { 4, 5 }, ints = 4 }, { { 4, 5 }, ints = 9 }, axis = 2 }

  bad { "take_along_axis", { { 3, 5 }, 0, 1 }, { { 2, 5 }, ints = 3 }, axis = 2, error = "shape {2, 5} do not fit" }
  bad { "take_along_axis", { { 3, 5 }, 0, 1 }, { { 3 }, ints = 3 }, axis = 2, error = "do not fit {3, 5} along axis 2" }
  bad { "take_along_axis", { { 3, 5 }, 0, 1 }, { { 3, 2 }, 0, 1 }, axis = 2, error = "must hold integers" }
  bad { "argsort", { { 3, 5 }, 0, 1 }, count = 6, error = "count must be 0 to 5" }
  bad { "argsort", { {}, 0, 1 }, error = "axis" }
  bad { "linear_scan", { { 3, 5 }, 0, 1 }, { { 3, 4 }, 0, 1 }, error = "shapes {3, 5} and {3, 4} differ" }
end
