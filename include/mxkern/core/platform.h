// mxkern/core/platform.h: the macros of the library, all of them.
#pragma once

// A small function of the numerics: usable on the host, in kernels and in constant expressions.
// It is always inlined on the host, so that one definition can serve objects that are compiled for
// different instruction sets without the linker merging them.
#if defined(__CUDACC__)
#define MXKERN_HOST_DEVICE __host__ __device__ __forceinline__
#elif defined(__GNUC__)
#define MXKERN_HOST_DEVICE [[gnu::always_inline]] inline
#else
#define MXKERN_HOST_DEVICE inline
#endif

// Gives the first expression where device code is compiled, and the second one on the host: both
// have the same value, and the device has an instruction for its own.
#if defined(__CUDA_ARCH__)
#define MXKERN_ON_DEVICE(device, host) (device)
#else
#define MXKERN_ON_DEVICE(device, host) (host)
#endif

// A function that libmxkern exports.
#if defined(__GNUC__)
#define MXKERN_API __attribute__((visibility("default")))
#else
#define MXKERN_API
#endif
