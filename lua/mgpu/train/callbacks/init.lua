--- mgpu.callbacks: for each class the file that defines it, loaded on first use.
return require "mgpu.strict_table".lazy("callback", "mgpu.train.callbacks", {
  BackupAndRestore = "backup_and_restore",
  BatchTiming = "timing",
  Callback = "callback",
  CSVLogger = "csv_logger",
  EarlyStopping = "early_stopping",
  History = "history",
  LambdaCallback = "lambda_callback",
  LearningRateScheduler = "learning_rates",
  LearningRateWarmup = "learning_rates",
  ModelCheckpoint = "model_checkpoint",
  ReduceLROnPlateau = "learning_rates",
  SamplesPerSec = "timing",
  TensorBoard = "tensor_board",
  TensorBoardEmbedding = "tensor_board_embedding",
  TerminateOnNaN = "terminate_on_nan",
})
