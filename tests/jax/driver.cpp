// The fake driver of templates/prove, with the contexts of streams: what XLA's handler asks for.
#include "../../templates/prove/driver.cpp"

extern "C" {

int cuStreamGetCtx(void* stream, void** context) {
  if (stream) return kInvalid;  // XLA's CPU backend has none
  *context = nullptr;  // that of device 0
  return 0;
}

int cuCtxPushCurrent_v2(void* context) {
  fake::say("push\n");
  return cuCtxSetCurrent(context);
}

int cuGetErrorName(int error, const char** name) {
  if (error != kInvalidImage) return kInvalid;
  *name = "CUDA_ERROR_INVALID_IMAGE";
  return 0;
}

int cuCtxPopCurrent_v2(void** context) {
  fake::say("pop\n");
  *context = nullptr;
  has_context = false;
  return 0;
}
}
