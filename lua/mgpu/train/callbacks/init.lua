--- mgpu.callbacks: for each class the file that defines it, loaded on first use.
return require "mgpu.strict_table".lazy("callback", "mgpu.train.callbacks", {
  BackupAndRestore = "checkpoints",
  BatchTiming = "timing",
  Callback = "callback",
  CSVLogger = "csv_logger",
  EarlyStopping = "stopping",
  History = "history",
  LambdaCallback = "lambda_callback",
  LearningRateScheduler = "learning_rates",
  LearningRateWarmup = "learning_rates",
  ModelCheckpoint = "checkpoints",
  ReduceLROnPlateau = "learning_rates",
  SamplesPerSec = "timing",
  SwapEMAWeights = "swap_ema_weights",
  TensorBoard = "tensor_board",
  TensorBoardEmbedding = "tensor_board",
  TerminateOnNaN = "stopping",
})
