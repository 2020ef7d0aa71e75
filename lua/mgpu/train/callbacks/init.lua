--- mgpu.callbacks: one line a class, loaded on first use.
return require "mgpu.strict_table".lazy("callback", "mgpu.train.callbacks", {
  BackupAndRestore = "backup_and_restore",
  BatchTiming = "batch_timing",
  Callback = "callback",
  CSVLogger = "csv_logger",
  EarlyStopping = "early_stopping",
  History = "history",
  LambdaCallback = "lambda_callback",
  LearningRateScheduler = "learning_rate_scheduler",
  LearningRateWarmup = "learning_rate_warmup",
  ModelCheckpoint = "model_checkpoint",
  ReduceLROnPlateau = "reduce_lr_on_plateau",
  SamplesPerSec = "samples_per_sec",
  TensorBoard = "tensor_board",
  TensorBoardEmbedding = "tensor_board_embedding",
  TerminateOnNaN = "terminate_on_nan",
})
