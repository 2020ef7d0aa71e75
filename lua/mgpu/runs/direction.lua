--- more_is_better(name) -> whether more of the value is better, by its name; nil if that cannot be told.
return function(name)
  for _, part in ipairs { "loss", "error", "mse", "mae", "perplexity" } do
    if name:find(part, 1, true) then return false end
  end
  for _, part in ipairs { "acc", "auc", "precision", "recall", "fmeasure", "f1", "top_k", "iou" } do
    if name:find(part, 1, true) then return true end
  end
end
