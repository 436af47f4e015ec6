// cuda/launch.h: what every launch needs: the right device, a grid, errors as exceptions.
#pragma once

#if defined(__USE_FAST_MATH__)
#error \
    "mxkern is compiled with --use_fast_math, under which kernels round in other ways; leave it out"
#endif

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "mxkern/core/buffer.h"
#include "mxkern/core/error.h"
#include "mxkern/kernels/row_grid.cuh"

namespace mxkern::cuda {

// Throws what a CUDA call returned; the runtime's last error is cleared, so later calls are usable.
inline void check_cuda(cudaError_t error, const char* function, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw Unsupported(concatenate(function, ": CUDA failed to ", what, ": ", cudaGetErrorName(error),
                                ", ", cudaGetErrorString(error)));
}

// What the runtime knows about a device.
inline int attribute_of(const char* function, cudaDeviceAttr attribute, int device) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, attribute, device), function,
             "read what the device can do");
  return value;
}

// The same of the current device.
inline int attribute_of(const char* function, cudaDeviceAttr attribute) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), function, "find the current device");
  return attribute_of(function, attribute, device);
}

inline cudaStream_t handle_of(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

// Throws unless the stream is one of the device. Some drivers take a launch on a stream of another
// device and run it there, out of reach of the arrays. Asks nothing where there is one device, nor
// of a stream that is being captured, as the question would end the capture.
inline void check_stream(const char* function, Stream stream, Device device) {
  static const bool several = [] {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 1;
  }();
  const cudaStream_t handle = handle_of(stream);
  if (!several || handle == nullptr || handle == cudaStreamLegacy ||
      handle == cudaStreamPerThread) {
    return;
  }
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(handle, &capture), function, "look up a stream");
  if (capture != cudaStreamCaptureStatusNone) return;
  int index = 0;
  check_cuda(cudaStreamGetDevice(handle, &index), function, "look up a stream's device");
  check(index == device.index, function, ": stream is one of cuda:", index,
        " but the arrays lie on cuda:", device.index, "; expected a stream of the arrays' device");
}

// Makes a device current for the scope, and the one before afterwards.
class DeviceScope {
 public:
  // For work on a stream that a user gave.
  DeviceScope(Device device, Stream stream, const char* function) : DeviceScope(device, function) {
    check_stream(function, stream, device);
  }

  DeviceScope(Device device, const char* function) {
    check_cuda(cudaGetDevice(&before_), function, "find the current device");
    if (device.index != before_) {
      check_cuda(cudaSetDevice(device.index), function, "select the array's device");
      changed_ = true;
    }
  }
  ~DeviceScope() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// Thread blocks in each direction, as many as wanted or as there can be: kernels wrap around in y
// and z.
inline dim3 grid_of(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1) {
  constexpr std::int64_t largest = 65535;
  return dim3(static_cast<unsigned>(std::min<std::int64_t>(x, 0x7FFFFFFF)),
              static_cast<unsigned>(std::min(y, largest)),
              static_cast<unsigned>(std::min(z, largest)));
}

// Whether a kernel may start while the one ahead of it in the stream is still at work.
enum class Start : std::uint8_t {
  behind,  // no
  early,  // yes, from 9.0 on: it calls wait_for_kernels_ahead before it touches what they may write
};

inline bool can_start_early(const char* function) {
  return attribute_of(function, cudaDevAttrComputeCapabilityMajor) >= 9;
}

// Lets a kernel have this much shared memory.
template <class... Parameters>
void reserve_shared(const char* function, void (*kernel)(Parameters...), std::size_t bytes) {
  constexpr std::size_t without_asking = 48 * 1024;
  if (bytes <= without_asking) return;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)),
             function, "reserve shared memory");
}

inline cudaLaunchAttribute early_start() {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

// Launches kernel(arguments...).
template <Start start = Start::behind, class... Parameters, class... Arguments>
void launch(const char* function, void (*kernel)(Parameters...), dim3 grid, int threads,
            std::size_t shared_bytes, Stream stream, const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  reserve_shared(function, kernel, shared_bytes);
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = handle_of(stream);
  cudaLaunchAttribute attribute = early_start();
  if (start == Start::early && can_start_early(function)) {
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...), function, "launch a kernel");
}

// Launches kernel(arguments...) in clusters of so many thread blocks along x, which may start
// early: on devices of which can_start_early is true.
template <class... Parameters, class... Arguments>
void launch_clusters(const char* function, void (*kernel)(Parameters...), int cluster, dim3 grid,
                     int threads, std::size_t shared_bytes, Stream stream,
                     const Arguments&... arguments) {
  reserve_shared(function, kernel, shared_bytes);
  cudaLaunchAttribute attributes[2] = {early_start()};
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = handle_of(stream);
  config.attrs = attributes;
  config.numAttrs = 2;
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...), function, "launch clusters");
}

// The multiprocessors of the current device.
inline int processor_count(const char* function) {
  return attribute_of(function, cudaDevAttrMultiProcessorCount);
}

// Shared memory with which the thread blocks of a grid spread evenly over the device, where all of
// them fit at once, `resident` a multiprocessor: a kernel that starts early gets multiprocessors
// one after the other, and the first ones would take as many as fit.
inline int spread_bytes(const char* function, std::int64_t blocks, int resident, int bytes) {
  constexpr int reserved = 2048;  // of each thread block, with what it has without asking
  const std::int64_t processors = processor_count(function);
  const auto most = static_cast<int>(ceil_div(blocks, processors));  // a multiprocessor
  if (most < 2 || most >= resident || !can_start_early(function)) return bytes;
  const int all = attribute_of(function, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  return std::max(bytes, all / most - reserved);
}

// Throws unless the address is the device's: a host pointer would end the whole process' use of the
// device, and memory of another device would be slow or fail later.
inline void check_device_pointer(const char* function, const char* name, const void* pointer,
                                 Device device) {
  if (pointer == nullptr) return;
  cudaPointerAttributes attributes = {};
  check_cuda(cudaPointerGetAttributes(&attributes, pointer), function, "look up a pointer");
  check(attributes.type != cudaMemoryTypeUnregistered, function, ": ", name,
        " is said to lie on a CUDA device but points to host memory; copy it to the device or pass "
        "it as a CPU array");
  check(attributes.type != cudaMemoryTypeDevice || attributes.device == device.index, function,
        ": ", name, " is said to lie on cuda:", device.index,
        " but points to memory of cuda:", attributes.device,
        "; expected all arguments on one device");
}

// The grid of a kernel along rows of `octets` octets: 16 to 256 of them across a thread block, as
// many as leave the fewest threads without one, and up to 2^log2_depth groups of rows a thread
// block as long as the device stays full.
inline kernels::RowGrid row_grid(std::int64_t batch, std::int64_t rows, std::int64_t octets,
                                 int log2_depth = 0) {
  constexpr std::int64_t enough_blocks = 1024;
  int log2 = 4;
  while (log2 < 8 && (std::int64_t{1} << log2) < octets) ++log2;
  for (int fewer = log2 - 1; fewer >= 5; --fewer) {
    if (round_up(octets, std::int64_t{1} << fewer) < round_up(octets, std::int64_t{1} << log2)) {
      log2 = fewer;
    }
  }
  kernels::RowGrid grid{batch, rows, octets, log2};
  while (grid.log2_depth < log2_depth && grid.log2_depth < grid.log2_groups() &&
         grid.chunks() * grid.series() * batch >= 2 * enough_blocks) {
    ++grid.log2_depth;
  }
  return grid;
}

inline dim3 grid_of(const kernels::RowGrid& grid) {
  return grid_of(grid.chunks(), grid.series(), grid.batch);
}

// The same, with only as many thread blocks as the device holds at a time, `blocks` a
// multiprocessor, where that divides the work well: each then walks through many series with its
// loads ahead of the work, and none of them is left over for a last round.
inline dim3 resident_grid(const char* function, const kernels::RowGrid& grid, int blocks) {
  const std::int64_t series = grid.series(), others = grid.chunks() * grid.batch;
  constexpr std::int64_t few = 2048;
  if (series * others <= few) return grid_of(grid);
  const std::int64_t resident = std::int64_t{processor_count(function)} * blocks;
  std::int64_t best = series;
  double best_share = 0.9;
  for (int rounds = 1; rounds <= 8; ++rounds) {
    const std::int64_t down = std::min(series, resident * rounds / others);
    if (down == 0) continue;
    const double full = static_cast<double>(down * others) / static_cast<double>(resident * rounds);
    const double even =
        static_cast<double>(series) / static_cast<double>(ceil_div(series, down) * down);
    if (full * even > best_share + 0.01) {
      best = down;
      best_share = full * even;
    }
  }
  return grid_of(grid.chunks(), best, grid.batch);
}

}  // namespace mxkern::cuda
