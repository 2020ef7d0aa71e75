-- The cases of the ops that transform to frequencies. See rows.lua.
return function(case, bad)
  -- Lengths: 1, powers of 2, products of small primes, primes, and a product with a large prime.
  for _, n in ipairs { 1, 2, 3, 4, 5, 8, 12, 30, 37, 49, 64, 134 } do
    local rows, grad = n % 3 + 1, nil
    if n > 40 then grad = false end
    -- the sums of float32 values differ from the reference by the rounding of the results only
    case { "rfft", { { rows, n }, -1, 1 }, tol = 2e-6, why = "sums of up to 134 terms in another order", grad = grad }
    case { "rfft_transpose", { { rows, 2, math.floor(n / 2) + 1 }, -1, 1 }, length = n, tol = 2e-6,
      why = "sums of up to 134 terms in another order", grad = grad }
  end
  case { "rfft", { { 2, 3, 2, 6 }, -1, 1 } }
  case { "rfft", { { 7 }, -1, 1 } }
  case { "rfft_transpose", { { 2, 4 }, -1, 1 }, length = 7 }
  case { "rfft", { { 0, 4 }, -1, 1 }, grad = false }
  case { "rfft", { { 90, 512 }, -1, 1 }, grad = false, tol = 2e-5, why = "sums of 512 terms in another order" }
  case { "rfft_transpose", { { 91, 2, 130 }, -1, 1 }, length = 259, grad = false, tol = 2e-5,
    why = "sums of 260 terms in another order" }
  bad { "rfft", { {}, 0, 1 }, error = "needs 1 to 7 axes" }
  bad { "rfft", { { 2, 0 }, 0, 1 }, error = "the last with at least one element" }
  bad { "rfft", { { 4 }, ints = 3 }, as = "int32", error = "float" }
  bad { "rfft_transpose", { { 2, 3 }, 0, 1 }, length = 6, error = "the length 6 needs the shape {..., 2, 4}" }
end
