// mxkern/core/device.h: where memory lies, and the stream that work is put on.
#pragma once

#include <cstdint>

namespace mxkern {

enum class DeviceType : std::uint8_t { cpu, cuda };

inline constexpr DeviceType all_device_types[] = {DeviceType::cpu, DeviceType::cuda};

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  friend constexpr bool operator==(const Device&, const Device&) = default;
};

constexpr const char* name_of(DeviceType type) { return type == DeviceType::cpu ? "cpu" : "cuda"; }

// A cudaStream_t, without naming CUDA; ignored on the CPU. Null is the legacy default stream.
struct Stream {
  void* handle = nullptr;
};

}  // namespace mxkern
