--- mgpu.callbacks: one line a class, loaded on first use.
return require "mgpu.strict_table".lazy("callback", "mgpu.train.callbacks", {
  Callback = "callback",
  History = "history",
  LambdaCallback = "lambda_callback",
})
