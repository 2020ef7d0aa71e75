--- The program's option --resume DIR: where the fits of the script save their checkpoints and continue from.
local M = { folder = nil, fits = 0 }

--- next_folder() -> the folder for the next fit: DIR for the first, DIR/fit-2, ... for later ones; nil without the
--- option.
function M.next_folder()
  if not M.folder then return nil end
  M.fits = M.fits + 1
  return M.fits == 1 and M.folder or ("%s/fit-%d"):format(M.folder, M.fits)
end

return M
