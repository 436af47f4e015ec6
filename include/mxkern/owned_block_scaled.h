// mxkern/owned_block_scaled.h: a quantized tensor that owns its memory, and operations that make
// one or get their working memory by themselves. All other operations allocate nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <utility>

#include "mxkern/core/error.h"
#include "mxkern/core/math.h"
#include "mxkern/plan.h"
#include "mxkern/quantize.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern {

// An allocator is a std::pmr::memory_resource, the standard library's interface: allocate(bytes,
// alignment), which throws where it cannot, and deallocate. One of your own gives the memory of a
// CUDA device (docs/guide/cpp.md). It outlives what it gave. By default it is the program's default
// resource, which gives memory of the host.
using MemoryResource = std::pmr::memory_resource;

// Memory from an allocator, which has it back in the end. It is not initialized, and aligned as any
// operation wants it: 64 bytes for working memory on the CPU, 256 on CUDA devices, 128 for prepared
// operands.
class OwnedMemory {
 public:
  static constexpr std::size_t alignment = 256;

  OwnedMemory() = default;
  // Throws what the allocator throws, and InvalidArgument for a CUDA device with memory of the
  // host.
  explicit OwnedMemory(std::size_t bytes, Device device = {},
                       MemoryResource& from = *std::pmr::get_default_resource())
      : from_(&from), bytes_(std::max<std::size_t>(bytes, 1)) {
    check(device.type == DeviceType::cpu || !is_of_host(from), "OwnedMemory: device is ",
          name_of(device.type), ":", device.index,
          " and the allocator the standard library's, of the host's memory; expected one of the "
          "device's; pass a std::pmr::memory_resource that calls cudaMalloc");
    data_ = from.allocate(bytes_, alignment);
  }

  // Moves, and does not copy: a copy on a CUDA device would need a stream.
  OwnedMemory(OwnedMemory&& other) noexcept { swap(other); }
  OwnedMemory& operator=(OwnedMemory&& other) noexcept {
    OwnedMemory(std::move(other)).swap(*this);
    return *this;
  }
  ~OwnedMemory() {
    if (data_ != nullptr) from_->deallocate(data_, bytes_, alignment);
  }

  // Null once it was moved from.
  std::uint8_t* data() const { return static_cast<std::uint8_t*>(data_); }

 private:
  static bool is_of_host(const MemoryResource& from) {
    return &from == std::pmr::get_default_resource() || &from == std::pmr::new_delete_resource();
  }

  void swap(OwnedMemory& other) noexcept {
    std::swap(from_, other.from_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  MemoryResource* from_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Codes, scales and tensor scale in memory of its own, which is not initialized: quantize writes
// all of it. It moves and does not copy, as OwnedMemory. It goes wherever a BlockScaled goes; views
// stay valid while it is moved about, in a vector that grows too, and until it is destroyed. On a
// CUDA device keep it until the stream has done the work.
class OwnedBlockScaled {
 public:
  // Throws InvalidArgument as BlockScaled::sizes and OwnedMemory do.
  OwnedBlockScaled(Scheme scheme, const Shape& shape, ScaleLayout layout = ScaleLayout::row_major,
                   Device device = {}, MemoryResource& from = *std::pmr::get_default_resource())
      : about_{scheme, shape, layout, nullptr, nullptr, nullptr, device},
        sizes_(BlockScaled::sizes(scheme, shape, layout)),
        memory_(static_cast<std::size_t>(scalars_at() + 2 * std::int64_t{sizeof(float)}), device,
                from) {}

  // Computed from where the memory is now. The view of a constant is read-only: operations refuse
  // to write to it. After a move codes and scales of the source are null.
  BlockScaled view() {
    BlockScaled q = about_;
    if (memory_.data() == nullptr) return q;
    q.codes = memory_.data();
    q.scales = memory_.data() + scales_at();
    if (sizes_.tensor_scale > 0) q.tensor_scale = scalar(0);
    return q;
  }
  BlockScaled view() const {
    BlockScaled q = const_cast<OwnedBlockScaled*>(this)->view();
    q.is_read_only = true;
    return q;
  }
  operator BlockScaled() { return view(); }
  operator BlockScaled() const { return view(); }

  // A place for QuantizeOptions::found_amax, on the device.
  float* found_amax() { return scalar(1); }

 private:
  static constexpr std::int64_t apart = 128;  // bytes: no cache line has two of the parts

  std::int64_t scales_at() const { return round_up(sizes_.codes, apart); }
  std::int64_t scalars_at() const { return scales_at() + round_up(sizes_.scales, apart); }
  float* scalar(int index) const {
    return reinterpret_cast<float*>(memory_.data() + scalars_at()) + index;
  }

  BlockScaled about_;  // without addresses
  BlockScaled::Sizes sizes_;
  OwnedMemory memory_;
};

// quantize to memory of its own. NVFP4 on a CUDA device needs no found_amax here.
[[nodiscard]] inline OwnedBlockScaled quantize(
    const Buffer& x, Scheme scheme, QuantizeOptions options = {},
    MemoryResource& from = *std::pmr::get_default_resource(), Stream stream = {}) {
  OwnedBlockScaled q(scheme, x.shape, ScaleLayout::row_major, x.device, from);
  const bool finds_amax = options.amax == nullptr && options.tensor_scale == nullptr;
  if (q.view().tensor_scale != nullptr && finds_amax && options.found_amax == nullptr) {
    options.found_amax = q.found_amax();
  }
  quantize(x, q.view(), options, stream);
  return q;
}

// gemm with working memory from the allocator, which has it back when the call returns. On a CUDA
// device the work may not be done by then: deallocate has to wait for it, as cudaFree does, or be
// ordered by the same stream, as cudaFreeAsync is.
inline void gemm(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                 const GemmOptions& options = {},
                 MemoryResource& from = *std::pmr::get_default_resource(), Stream stream = {}) {
  const GemmPlan plan = plan_gemm(a, b, out, options);
  const std::size_t bytes = plan.workspace_bytes();
  const OwnedMemory workspace = bytes == 0 ? OwnedMemory() : OwnedMemory(bytes, out.device, from);
  gemm(plan, a, b, out, options, Workspace{workspace.data(), bytes}, stream);
}

}  // namespace mxkern
