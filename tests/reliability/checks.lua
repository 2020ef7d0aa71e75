-- The names of the checks, in the order of the table.
return { "kills", "writers", "faults", "flips", "hostile", "checkpoint_faults", "checkpoint_flips", "checkpoint_kills",
  "checkpoint_resumes", "checkpoint_devices", "out_of_memory", "limits", "lifetimes", "interrupts", "attaches",
  "ranks" }
