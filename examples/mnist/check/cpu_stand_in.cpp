// The CUDA runtime, the generated kernels and those of step_kernels.cuh as plain C++, for tests
// without a GPU: linked instead of them, they make the whole program run on a CPU, slowly, with
// every launch, event and graph as the program asks for them. What the real kernels compute is
// tested elsewhere, on the emulator.
//
// Device memory is host memory. One stream, the one that STAND_IN_EAGER numbers in the order in which
// they are made, does what it is given at once; the others do nothing before somebody waits for it. So
// a wait that the program forgets shows. What is recorded during a capture, a replay of the graph gives
// the streams again.
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <set>
#include <vector>

#include "../src/step.h"
#include "mnist_forward.h"
#include "mnist_forward_f16.h"
#include "mnist_input_gradient.h"
#include "mnist_input_gradient_f16.h"
#include "mnist_logits.h"
#include "mnist_weight_update.h"

namespace {

using Work = std::function<void()>;

// What the program has made and not yet given back.
std::set<void*> alive;

bool capturing = false;
std::vector<Work> recorded;  // what gives the streams their work again

struct Stream {
  bool eager;
  std::deque<Work> waiting = {};
  size_t given = 0, done = 0;

  void run_until(size_t end) {
    while (done < end) {
      const Work work = std::move(waiting.front());
      waiting.pop_front();
      ++done;
      work();
    }
  }
  void give(Work work) {
    waiting.push_back(std::move(work));
    ++given;
    if (eager) run_until(given);
  }
};

std::vector<Stream*> streams;  // all that were made

// What a stream had been given when the event was recorded.
struct Event {
  Stream* stream = nullptr;
  size_t given = 0;

  void wait() const {
    if (stream) stream->run_until(given);
  }
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "stand-in: %s\n", what);
  std::abort();
}

template <class Handle>
Handle make(void* memory) {
  alive.insert(memory);
  return reinterpret_cast<Handle>(memory);
}

void end(void* handle) {
  if (alive.erase(handle) != 1) fail("given back twice, or never made");
}

// At once, or when a graph is replayed.
cudaError_t carry_out(Work work) {
  if (capturing) {
    recorded.push_back(std::move(work));
  } else {
    work();
  }
  return cudaSuccess;
}

Stream* known(cudaStream_t stream) {
  if (alive.count(stream) != 1) fail("a stream that does not exist");
  return reinterpret_cast<Stream*>(stream);
}

Event* known(cudaEvent_t event) {
  if (alive.count(event) != 1) fail("an event that does not exist");
  return reinterpret_cast<Event*>(event);
}

cudaError_t enqueue(cudaStream_t stream, Work work) {
  Stream* const to = known(stream);
  return carry_out([=] { to->give(work); });
}

struct AtExit {
  ~AtExit() {
    if (!alive.empty()) fail("something was not given back");
    for (const Stream* stream : streams) delete stream;
  }
} at_exit;

// What a GEMM reads: element (i, j) is at i * row + j * col.
struct Strided {
  const __half* at;
  long long row, col;
};

// The sums are those of f32 kernels; `epilogue` takes one and its place.
template <class Out, class Epilogue>
void multiply(
    long long M, long long N, long long K, float alpha, Strided a, Strided b, float beta,
    const Out* C, long long ldc, Out* D, long long ldd, Epilogue epilogue) {
  for (long long i = 0; i < M; ++i) {
    for (long long j = 0; j < N; ++j) {
      float sum = 0;
      for (long long k = 0; k < K; ++k) {
        sum +=
            __half2float(a.at[i * a.row + k * a.col]) * __half2float(b.at[k * b.row + j * b.col]);
      }
      float x = alpha * sum;
      if (beta != 0) x += beta * static_cast<float>(C[i * ldc + j]);
      D[i * ldd + j] = static_cast<Out>(epilogue(x, i, j));
    }
  }
}

float relu(float x) {
  return x < 0 ? 0 : x;  // NaN stays
}

struct Graph {
  std::vector<Work> work;
};

}  // namespace

// ---------------------------------------------------------------------------- generated kernels

// The two functions of a bundle. MORE: the parameters of its epilogue, X: the value of it, of x.
#define STAND_IN(name, Out, a_col_major, b_col_major, MORE, X)                             \
  extern "C" cudaError_t name##_workspace(                                                 \
      long long, long long, long long, const __half*, long long, const __half*, long long, \
      size_t* bytes) {                                                                     \
    *bytes = 64;                                                                           \
    return cudaSuccess;                                                                    \
  }                                                                                        \
  extern "C" cudaError_t name##_launch(                                                    \
      long long M, long long N, long long K, float alpha, const __half* A, long long lda,  \
      const __half* B, long long ldb, float beta, const Out* C, long long ldc, Out* D,     \
      long long ldd, MORE void* workspace, size_t bytes, cudaStream_t stream) {            \
    if (workspace == nullptr || bytes < 64 || lda % 8 != 0 || ldb % 8 != 0) fail(#name);   \
    const Strided a{A, a_col_major ? 1 : lda, a_col_major ? lda : 1};                      \
    const Strided b{B, b_col_major ? 1 : ldb, b_col_major ? ldb : 1};                      \
    return enqueue(stream, [=] {                                                           \
      multiply<Out>(                                                                       \
          M, N, K, alpha, a, b, beta, C, ldc, D, ldd,                                      \
          [=]([[maybe_unused]] float x, [[maybe_unused]] long long row,                    \
              [[maybe_unused]] long long col) -> float { return X; });                     \
    });                                                                                    \
  }
#define COMMA ,
#define FORWARD(name) \
  STAND_IN(name, __half, false, false, const __half* bias COMMA, relu(x + __half2float(bias[col])))
#define INPUT_GRADIENT(name)                                                                   \
  STAND_IN(                                                                                    \
      name, __half, false, true, const __half* activation COMMA long long ld_activation COMMA, \
      __half2float(activation[row * ld_activation + col]) > 0 ? x : 0)

FORWARD(mnist_forward)
FORWARD(mnist_forward_f16)
STAND_IN(mnist_logits, float, false, false, const float* bias COMMA, x + bias[col])
INPUT_GRADIENT(mnist_input_gradient)
INPUT_GRADIENT(mnist_input_gradient_f16)
STAND_IN(mnist_weight_update, float, true, false, , x)

// ---------------------------------------------------------------------------- the step's kernels

void launch_softmax_gradient(
    int rows, const float* logits, const unsigned char* labels, __half* gradient, float* losses,
    float* bias_sums, int* step, cudaStream_t stream) {
  enqueue(stream, [=] {
    std::memset(bias_sums, 0, sizeof(float) * softmax_blocks(rows) * kClassesLd);
    for (int row = 0; row < rows; ++row) {
      const float* const x = logits + row * kClassesLd;
      float top = x[0], total = 0;
      for (int c = 1; c < kClasses; ++c) top = std::fmax(top, x[c]);
      for (int c = 0; c < kClasses; ++c) total += std::exp(x[c] - top);
      losses[row] = std::log(total) - (x[labels[row]] - top);
      for (int c = 0; c < kClassesLd; ++c) {
        const float g =
            c < kClasses ? std::exp(x[c] - top) / total - float(c == labels[row]) : 0.0f;
        gradient[row * kClassesLd + c] = __float2half(g);
        bias_sums[row / kSoftmaxRows * kClassesLd + c] += g;
      }
    }
    ++*step;
  });
}

void launch_column_sums(
    int rows, int cols, const __half* matrix, float* sums, cudaStream_t stream) {
  enqueue(stream, [=] {
    std::memset(sums, 0, sizeof(float) * sum_blocks(rows) * cols);
    for (int row = 0; row < rows; ++row) {
      for (int col = 0; col < cols; ++col) {
        sums[row / kSumRows * cols + col] += __half2float(matrix[row * cols + col]);
      }
    }
  });
}

void launch_widen_images(
    int images, const unsigned char* pixels, __half* halves, cudaStream_t stream) {
  enqueue(stream, [=] {
    for (int i = 0; i < images * kPixels; ++i)
      halves[i] = __float2half(pixels[i] * (1.0f / 255.0f));
  });
}

void launch_advance(Advance a, cudaStream_t stream) {
  enqueue(stream, [=] {
    for (int row = 0; row < a.batch; ++row) {
      const int image = a.order[*a.step * a.batch + row];
      a.batch_labels[row] = a.labels[image];
      for (int p = 0; p < kPixels; ++p) {
        a.batch_images[row * kPixels + p] =
            __float2half(a.images[image * kPixels + p] * (1.0f / 255.0f));
      }
    }
    for (int i = 0; i < 2 * a.hidden + kClasses; ++i) {
      const int layer = i / a.hidden < 2 ? i / a.hidden : 2;
      const float* const sums = layer < 2 ? a.hidden_sums[layer] : a.softmax_sums;
      const int pitch = layer < 2 ? a.hidden : kClassesLd;
      const int blocks = layer < 2 ? sum_blocks(a.batch) : softmax_blocks(a.batch);
      float sum = 0;
      for (int b = 0; b < blocks; ++b) sum += sums[b * pitch + i - layer * a.hidden];
      a.masters[a.weights + i] -= a.rate * sum;
    }
    for (long long i = 0; i < a.weights + 2 * a.hidden; ++i) {
      a.copies[i] = __float2half(a.masters[i]);
    }
    if (*a.step == 0) return;
    float sum = 0;
    for (int row = 0; row < a.batch; ++row) sum += a.row_losses[row];
    a.losses[*a.step - 1] = sum / a.batch;
  });
}

void launch_count_correct(
    int rows, const float* logits, const unsigned char* labels, int* correct, cudaStream_t stream) {
  enqueue(stream, [=] {
    for (int row = 0; row < rows; ++row) {
      int best = 0;
      for (int c = 1; c < kClasses; ++c) {
        if (logits[row * kClassesLd + c] > logits[row * kClassesLd + best]) best = c;
      }
      *correct += best == labels[row];
    }
  });
}

// ---------------------------------------------------------------------------- the runtime

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "stand-in");
  properties->multiProcessorCount = 4;
  properties->major = 8;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  for (Stream* stream : streams) stream->run_until(stream->given);
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) {
  return "error";
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = make<void*>(std::malloc(bytes));
  std::memset(*memory, 0xFF, bytes);  // NaN, in any format
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  end(memory);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return enqueue(stream, [=] { std::memset(memory, value, bytes); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  const char* const eager = std::getenv("STAND_IN_EAGER");
  streams.push_back(new Stream{size_t(eager ? std::atoi(eager) : 0) == streams.size()});
  *stream = make<cudaStream_t>(streams.back());
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!known(stream)->waiting.empty()) fail("nobody has waited for a stream");
  end(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (capturing) fail("a synchronisation during a capture");
  known(stream)->run_until(known(stream)->given);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  Stream* const waiting = known(stream);
  Event* const until = known(event);
  return carry_out([=] { waiting->give([now = *until] { now.wait(); }); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = make<cudaEvent_t>(new Event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete known(event);
  end(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Stream* const of = known(stream);
  Event* const recorded_now = known(event);
  return carry_out([=] { *recorded_now = {of, of->given}; });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  known(event)->wait();
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  capturing = true;
  recorded.clear();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  capturing = false;
  *graph = make<cudaGraph_t>(new Graph{recorded});
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = make<cudaGraphExec_t>(new Graph{*reinterpret_cast<Graph*>(graph)});
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  end(graph);
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  end(exec);
  delete reinterpret_cast<Graph*>(exec);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (const Work& work : reinterpret_cast<Graph*>(exec)->work) work();
  return cudaSuccess;
}

}  // extern "C"
