// bench/tuning/few_token_times.cu: the time of every plan of products of few tokens on this GPU,
// one line of JSON each, for bench/tuning/few_tokens.py. usage: few_token_times ROWSxCOLUMNS,...
// SCHEME,... TOKENS,... [float16]
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cuda/decode/multiply.h"
#include "mxkern/mxkern.h"
#include "plan/decode/search.h"
#include "plan/gemm_cuda.h"

namespace {

using namespace mxkern;

constexpr Device device{DeviceType::cuda, 0};
constexpr std::size_t cold_bytes = 200
                                   << 20;  // of weights that take turns: three times an H200's L2
constexpr int warm_rounds = 3, rounds = 7;
constexpr float round_milliseconds = 2.0f;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "few_token_times: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};
using Memory = std::unique_ptr<std::uint8_t, Free>;

Memory zeros(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes + 256));
  check(cudaMemset(memory, 0, bytes + 256));
  return Memory(static_cast<std::uint8_t*>(memory));
}

// So many 16-bit floats of normally distributed numbers, which repeat after some millions. What the
// bits are decides how much power it takes, and so the clock.
Memory normal_values(DType dtype, std::int64_t count) {
  constexpr std::int64_t period = 1 << 22;
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> block(static_cast<std::size_t>(std::min(period, count)));
  visit(dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (sizeof(T) == 2) {
      for (std::uint16_t& bits : block)
        bits = std::bit_cast<std::uint16_t>(from_float<T>(normal(generator)));
    }
  });
  Memory memory = zeros(static_cast<std::size_t>(count) * 2);
  for (std::int64_t begin = 0; begin < count; begin += period) {
    check(cudaMemcpy(memory.get() + begin * 2, block.data(),
                     static_cast<std::size_t>(std::min(period, count - begin)) * 2,
                     cudaMemcpyHostToDevice));
  }
  return memory;
}

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Scheme scheme_named(const std::string& name) {
  for (const Scheme scheme : all_schemes) {
    if (name == name_of(scheme)) return scheme;
  }
  std::fprintf(stderr, "few_token_times: there is no scheme '%s'\n", name.c_str());
  std::exit(1);
}

// Weights, tokens and outputs of one product, with so many weights that the cache has none of them.
class Product {
 public:
  Product(Scheme scheme, DType dtype, std::int64_t tokens, std::int64_t rows, std::int64_t columns)
      : scheme_(scheme),
        weights_shape_{1, rows, columns},
        x_(Buffer::dense(nullptr, dtype, {1, tokens, columns}, device)),
        out_(Buffer::dense(nullptr, DType::bfloat16, {1, tokens, rows}, device)) {
    const auto bytes = static_cast<std::size_t>(cuda::reordered_bytes(scheme, weights_shape_));
    const std::size_t count = std::max<std::size_t>(cold_bytes / bytes, 1) + 1;
    scale_ = zeros(sizeof(float));
    weights_.push_back(weights(bytes));
    for (std::size_t i = 1; i < count; ++i) {
      weights_.push_back(zeros(bytes));
      check(cudaMemcpy(weights_[i].get(), weights_[0].get(), bytes, cudaMemcpyDeviceToDevice));
    }
    x_memory_ = normal_values(dtype, x_.shape.size());
    out_memory_ = zeros(static_cast<std::size_t>(out_.shape.size()) * 2);
    x_.data = x_memory_.get();
    out_.data = out_memory_.get();
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&end_));
  }
  ~Product() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }

  // Microseconds of one product: the median of rounds of a graph, in which weights take turns.
  double time(const DecodePlan& plan) {
    const float once = seconds_of(plan, static_cast<int>(weights_.size()), 2) /
                       static_cast<float>(weights_.size());
    const int calls = std::clamp(static_cast<int>(round_milliseconds / once), 8, 1024);
    return 1e3 * seconds_of(plan, calls, warm_rounds + rounds) / calls;
  }

 private:
  Memory weights(std::size_t bytes) {
    const Memory values = normal_values(DType::bfloat16, weights_shape_.size());
    const auto sizes = BlockScaled::sizes(scheme_, weights_shape_, ScaleLayout::row_major);
    const Memory codes = zeros(static_cast<std::size_t>(sizes.codes));
    const Memory scales = zeros(static_cast<std::size_t>(sizes.scales));
    auto* const tensor_scale = reinterpret_cast<float*>(scale_.get());
    BlockScaled q;
    q.scheme = scheme_;
    q.shape = weights_shape_;
    q.codes = codes.get();
    q.scales = scales.get();
    if (sizes.tensor_scale > 0) q.tensor_scale = tensor_scale;
    q.device = device;
    QuantizeOptions options;
    const Memory amax = zeros(sizeof(float));
    if (sizes.tensor_scale > 0) options.found_amax = reinterpret_cast<float*>(amax.get());
    quantize(Buffer::dense(values.get(), DType::bfloat16, weights_shape_, device), q, options, {});
    Memory reordered = zeros(bytes);
    prepare_operand(q, {PreparedForm::few_tokens, q, reordered.get(), bytes}, {});
    check(cudaDeviceSynchronize());
    return reordered;
  }

  // Milliseconds of a graph of so many calls.
  float seconds_of(const DecodePlan& plan, int calls, int replays) {
    cuda::CoreFinish finish;
    finish.out = out_;
    if (facts_of(scheme_).has_tensor_scale) {
      finish.right_tensor_scale = reinterpret_cast<const float*>(scale_.get());
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; ++i) {
      const auto& memory = weights_[static_cast<std::size_t>(i) % weights_.size()];
      const cuda::ReorderedWeights weights{scheme_, weights_shape_, memory.get(), device};
      cuda::multiply_decode(  // as gemm calls it
          "few_token_times", x_, weights, finish, {}, Stream{stream_}, {}, &plan);
    }
    check(cudaStreamEndCapture(stream_, &graph));
    check(cudaGraphInstantiate(&exec, graph, 0));
    std::vector<float> times;
    for (int i = 0; i < replays; ++i) {
      float milliseconds = 0;
      check(cudaEventRecord(begin_, stream_));
      check(cudaGraphLaunch(exec, stream_));
      check(cudaEventRecord(end_, stream_));
      check(cudaEventSynchronize(end_));
      check(cudaEventElapsedTime(&milliseconds, begin_, end_));
      if (i >= std::min(warm_rounds, replays - 1)) times.push_back(milliseconds);
    }
    check(cudaGraphExecDestroy(exec));
    check(cudaGraphDestroy(graph));
    std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2),
                     times.end());
    return times[times.size() / 2];
  }

  Scheme scheme_;
  Shape weights_shape_;
  Buffer x_, out_;
  std::vector<Memory> weights_;
  Memory x_memory_, out_memory_, scale_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// A plan's modeled time and its measured time.
void print(const DecodeWork& work, Scheme scheme, const DecodePlan& plan, double thought,
           double measured) {
  std::printf(
      "{\"kernel\": \"%s\", \"scheme\": \"%s\", \"halves\": %d, \"bits\": %d, "
      "\"float_scales\": %d, \"batch\": %lld, \"all_tokens\": %lld, \"down\": %u, \"across\": %u, "
      "\"tile_bytes\": %d, \"weight_bytes\": %.0f, \"processors\": %d, \"tokens\": %d, "
      "\"row_tiles\": %d, \"warp_tiles\": %d, \"log2_parts\": %d, \"log2_ranks\": %d, "
      "\"x_stages\": %d, \"thought\": %.9g, \"measured\": %.9g}\n",
      plan.on_sm90 ? "few_sm90" : "few", name_of(scheme), work.has_halves, work.layout.bits,
      work.has_float_scales, static_cast<long long>(work.batch),
      static_cast<long long>(work.tokens), work.down, work.across, work.layout.tile_bytes(),
      work.weight_bytes, work.processors, plan.tokens, plan.row_tiles, plan.warp_tiles,
      plan.log2_parts, plan.log2_ranks, plan.x_stages, thought, measured);
  std::fflush(stdout);
}

void measure(Scheme scheme, DType dtype, std::int64_t tokens, std::int64_t rows,
             std::int64_t columns, int processors) {
  DecodeWork work(scheme, 1, tokens, rows, columns, processors);
  work.has_halves = dtype == DType::float16;
  Product product(scheme, dtype, tokens, rows, columns);
  std::vector<DecodePlan> plans;
  const auto add = [](const DecodePlan& plan, void* context) {
    static_cast<std::vector<DecodePlan>*>(context)->push_back(plan);
  };
  if (may_use_decode_sm90(dtype, tokens)) visit_decode_sm90(work, add, &plans);
  for (const int size : {8, 16, 32, 64}) {
    const bool is_near = tokens <= 64 && size >= tokens / 2;
    if (is_near) visit_decode(work, size, add, &plans);
  }
  for (const DecodePlan& plan : plans) {
    const double thought = plan.on_sm90 ? decode_sm90_time(work, plan) : decode_time(work, plan);
    print(work, scheme, plan, thought, product.time(plan));
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr,
                 "usage: few_token_times ROWSxCOLUMNS,... SCHEME,... TOKENS,... [float16]\n");
    return 1;
  }
  const DType dtype = count > 4 ? DType::float16 : DType::bfloat16;
  int processors = 0;
  check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  for (const std::string& shape : parts_of(arguments[1], ',')) {
    const std::vector<std::string> extents = parts_of(shape, 'x');
    for (const std::string& scheme : parts_of(arguments[2], ',')) {
      for (const std::string& tokens : parts_of(arguments[3], ',')) {
        measure(scheme_named(scheme), dtype, std::atoll(tokens.c_str()),
                std::atoll(extents.at(0).c_str()), std::atoll(extents.at(1).c_str()), processors);
      }
    }
  }
}
