// Random features (kernels/feature_map.h). A block of threads computes one query or key. x' is in
// shared memory, and each thread computes some of its projections.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/elementary.h"
#include "kernels/cuda/launch.h"
#include "kernels/device.h"

namespace runnel::cuda {

struct FeatureArgs {
  RandomFeatures features;
  float scale, constant;  // features.scale(), features.constant()
  const float* x;
  int64_t x_stride;
  int blocks;  // queries and keys of an input
  float* out;
  int64_t out_stride;
};

struct FeaturesKernel {
  using Args = FeatureArgs;
  static constexpr int kThreads = 64;
  static constexpr int kResident = 16;

  static constexpr Launch launch(int64_t inputs, const Args& args) {
    return {.blocks = inputs * args.blocks, .shared_bytes = int64_t{args.features.omega.rows} * 4};
  }

  template <typename Block>
  RUNNEL_DEVICE static void run(Block& block, const Args& args) {
    const RandomFeatures& features = args.features;
    const int64_t input = block.index() / args.blocks;
    const int64_t head = block.index() % args.blocks;
    const int dk = features.omega.rows;
    const float* x = args.x + input * args.x_stride + head * dk;
    const float* sigma = nullptr;
    float* held = block.template shared<float>();
    typename Block::template Each<float> part;
    float scale = args.scale;
    if (features.sigma.data != nullptr) {
      sigma = static_cast<const float*>(features.sigma.data) +
              head % features.sigma.rows * features.sigma.stride;
      block.each([&](int t) { part[t] = square(x, t, dk); });
      const float size = std::sqrt(block.sum(part));
      scale = scale / (size > 1e-12F ? size : 1e-12F);
    }
    block.each([&](int t) {
      for (int i = t; i < dk; i += kThreads) {
        held[i] = sigma == nullptr ? scale * x[i] : scale * x[i] * sigma[i];
      }
      part[t] = square(held, t, dk);
    });
    const float offset = 0.5F * block.sum(part) + args.constant;
    float* out = args.out + input * args.out_stride + head * features.size();
    block.each([&](int t) {
      const int width = features.projections();
      for (int j = t; j < width; j += kThreads) {
        put(args, offset, project(features.omega, held, j), out, j);
      }
      if (t == 0 && features.map == FeatureMap::kSmoothedFourier) {
        out[2 * width] = features.smoothing;
      }
    });
  }

 private:
  // Thread t's part of |x|^2.
  RUNNEL_DEVICE static float square(const float* x, int t, int dk) {
    float sum = 0.0F;
    for (int i = t; i < dk; i += kThreads) sum = std::fma(x[i], x[i], sum);
    return sum;
  }

  RUNNEL_DEVICE static float project(const View& omega, const float* x, int column) {
    const float* at = static_cast<const float*>(omega.data) + column;
    float u = 0.0F;
    for (int i = 0; i < omega.rows; ++i, at += omega.cols) u = std::fma(x[i], *at, u);
    return u;
  }

  // The one or two features of projection j.
  RUNNEL_DEVICE static void put(const Args& args, float offset, float u, float* out, int j) {
    const RandomFeatures& features = args.features;
    const int width = features.projections();
    if (features.map == FeatureMap::kFavor) {
      out[j] = exp_up_to(88.0F, u - offset);
      out[width + j] = exp_up_to(88.0F, (0.0F - u) - offset);
    } else if (features.map == FeatureMap::kGeneralized) {
      out[j] = activate_basic(features.kernel, u);
    } else {
      const Angle angle = angle_of(u);
      out[j] = args.constant * angle.cosine;
      out[width + j] = args.constant * angle.sine;
    }
  }
};

}  // namespace runnel::cuda
