// GEMMs from C++, compared with a loop on the CPU: one kernel called by its name, and a bundle that
// chooses among several kernels.
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "gemm.h"
#include "gemm_f32.h"

namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

void require(bool good, const char* what) {
  if (good) return;
  std::printf("%s\n", what);
  std::exit(1);
}

// Device memory that frees itself.
template <class T>
class Buffer {
 public:
  explicit Buffer(const std::vector<T>& values) : bytes_(values.size() * sizeof(T)) {
    check(cudaMalloc(&data_, bytes_), "cudaMalloc");
    check(cudaMemcpy(data_, values.data(), bytes_, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~Buffer() {
    cudaFree(data_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const {
    return static_cast<T*>(data_);
  }
  void read(std::vector<T>& values) const {
    check(cudaMemcpy(values.data(), data_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
  }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

// Small integers, of which sums are exact in every type; each matrix has others.
template <class T>
std::vector<T> matrix(int elements, int period) {
  std::vector<T> values(elements);
  for (int i = 0; i < elements; ++i) values[i] = T(float(i % period - period / 2));
  return values;
}

const float alpha = 0.5f, beta = 2.0f;

template <class T>
void compare(
    const char* name, int M, int N, int K, const std::vector<T>& a, const std::vector<T>& b,
    const std::vector<T>& c, const std::vector<T>& d) {
  for (int row = 0; row < M; ++row) {
    for (int col = 0; col < N; ++col) {
      float sum = 0;
      for (int k = 0; k < K; ++k) sum += float(a[row * K + k]) * float(b[k * N + col]);
      const float expected = float(T(alpha * sum + beta * float(c[row * N + col])));
      const float found = float(d[row * N + col]);
      if (found == expected) continue;
      std::printf("%s: D[%d][%d] is %g instead of %g\n", name, row, col, found, expected);
      std::exit(1);
    }
  }
}

// One kernel, on a stream.
void one_kernel(cudaStream_t stream) {
  const int M = 123, N = 77, K = 45;
  const auto a = matrix<float>(M * K, 7), b = matrix<float>(K * N, 5), c = matrix<float>(M * N, 3);
  std::vector<float> d(M * N);
  const Buffer<float> A(a), B(b), C(c), D(d);
  check(
      gemm_f32_launch(
          M, N, K, alpha, A.data(), K, B.data(), N, beta, C.data(), N, D.data(), N, stream),
      "gemm_f32_launch");
  check(cudaStreamSynchronize(stream), "gemm_f32");
  D.read(d);
  compare("gemm_f32", M, N, K, a, b, c, d);

  const cudaError_t error = gemm_f32_launch(
      M, N, K, alpha, nullptr, K, B.data(), N, beta, C.data(), N, D.data(), N, stream);
  require(error == cudaErrorInvalidValue, "a null matrix is not refused");
}

// Launches that were captured in a CUDA graph once, and are replayed.
void replay(const gemm_problem& problem, void* workspace, size_t bytes, cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  check(gemm_launch(&problem, workspace, bytes, stream), "gemm_launch");
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  for (int i = 0; i < 2; ++i) check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
  check(cudaStreamSynchronize(stream), "gemm");
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

// The bundle, with a problem for which it takes the kernel of that name.
void bundle(int M, int N, int K, const char* kernel, cudaStream_t stream) {
  const auto a = matrix<__half>(M * K, 5), b = matrix<__half>(K * N, 3);
  const auto c = matrix<__half>(M * N, 7);
  std::vector<__half> d(M * N);
  const Buffer<__half> A(a), B(b), C(c), D(d);

  gemm_problem problem = {};
  problem.type = GEMM_F16;
  problem.layout = GEMM_RRR;
  problem.M = M;
  problem.N = N;
  problem.K = K;
  problem.alpha = alpha;
  problem.A = A.data();
  problem.lda = K;
  problem.B = B.data();
  problem.ldb = N;
  problem.beta = beta;
  problem.C = C.data();
  problem.ldc = N;
  problem.D = D.data();
  problem.ldd = N;
  const char* const chosen = gemm_kernel(&problem);
  require(chosen && std::string_view(chosen) == kernel, "the bundle takes another kernel");

  size_t bytes;
  check(gemm_workspace(&problem, &bytes), "gemm_workspace");
  const Buffer<char> workspace(std::vector<char>(bytes + 1));
  if (bytes > 0) {
    require(
        gemm_launch(&problem, workspace.data(), bytes - 1, stream) == cudaErrorInvalidValue,
        "too small a workspace is not refused");
  }
  replay(problem, workspace.data(), bytes, stream);
  D.read(d);
  compare(kernel, M, N, K, a, b, c, d);

  problem.layout = GEMM_CCC;
  require(gemm_launch(&problem, nullptr, 0, stream) == cudaErrorNotSupported, "ccc is taken");
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: there is no GPU\n");
    return 77;
  }
  for (int device = 0; device < devices; ++device) {
    check(cudaSetDevice(device), "cudaSetDevice");
    cudaStream_t stream;
    check(cudaStreamCreate(&stream), "cudaStreamCreate");
    one_kernel(stream);
    bundle(512, 512, 64, "gemm_mma_f16_rrr_1", stream);
    bundle(123, 77, 45, "gemm_mma_f16_rrr_3", stream);
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  }
  std::printf("ok\n");
  return 0;
}
