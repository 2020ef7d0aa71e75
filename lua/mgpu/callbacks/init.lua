--- mgpu.callbacks: one line a class, loaded on first use.
return require "mgpu.index" ("callback", "mgpu.callbacks", {
  Callback = "callback",
  History = "history",
  LambdaCallback = "lambda_callback",
})
