// The operations of kernels/backend.h as launches of the kernels here: everything of the CUDA
// backend but the runtime. A template over the device, so that tests run it on the host.
//
// A Device offers
//   name()                          the part of the numerics id before the precision
//   allocate(bytes, memory)         zeroed memory, aligned to 64 bytes; throws std::bad_alloc
//   free_memory()                   bytes that allocate() can still give, about
//   shared_limit()                  bytes of shared memory that a block can have
//   copy(from, to), zero(bytes)     in order with the launches
//   must_wait(from, to)             whether copy() returns only when that is done, since `from` is
//                                   ordinary memory of the host's
//   launch<Kernel>(launch, args)    enqueues a launch of a kernel as launch.h describes it
//   batch(enqueue)                  calls enqueue(), which only launches, and enqueues that as one
//   done(later)                     as Backend::done(), a batch being a run(); at most one later
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/checks.h"
#include "kernels/cuda/around_product.h"
#include "kernels/cuda/chunks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/features.h"
#include "kernels/cuda/head.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/product_library.h"
#include "kernels/cuda/recur.h"
#include "kernels/cuda/rule_recur.h"
#include "kernels/cuda/shift.h"
#include "kernels/cuda/stage.h"
#include "kernels/cuda/whole.h"
#include "kernels/cuda/whole_launch.h"
#include "kernels/fused_network.h"

namespace runnel::cuda {

template <typename Device>
class DeviceBackend final : public Backend, public FusedSteps {
 public:
  template <typename... Arguments>
  explicit DeviceBackend(const CudaOptions& options, Arguments&&... arguments)
      : options_(options),
        device_(std::forward<Arguments>(arguments)...),
        rooms_(rooms_of(device_)),
        stage_(device_.allocate(kStageBytes, Memory::kDevice)),
        copies_(device_.allocate(kArrays * kArrayBytes, Memory::kDevice)) {}

  // Before the first weight is packed: products are this library's from now on.
  void use(std::unique_ptr<ProductLibrary> library) {
    library_ = std::move(library);
    workspace_ = device_.allocate(ProductLibrary::kWorkspaceBytes, Memory::kDevice);
  }

  DeviceKind device() const override { return DeviceKind::kCuda; }
  std::string numerics(Precision precision) const override {
    if (precision >= Precision::kInt8) return "";  // of a CPU, or not of whole models
    std::string id = device_.name() + (precision == Precision::kBf16 ? "/bf16/step" : "/fp32/step");
    if (options_.library) id += "+cublas";
    if (options_.replay) id += "+replay" + std::to_string(kReplay);
    if (options_.chunks) id += "+chunks" + std::to_string(kChunk);
    return id;
  }
  // The library chooses its order of sums by the number of rows.
  bool batch_changes_bits() const override { return options_.library; }
  Precision preferred() const override { return Precision::kBf16; }
  Precision precise(Precision of) const override {
    return of == Precision::kBf16 && library_ == nullptr ? Precision::kSplit : Precision::kFp32;
  }
  int64_t free_memory() const override { return device_.free_memory(); }
  int64_t state_bytes(const Recurrence& recurrence) const override {
    if (recurrence.linear() == nullptr) return recurrence.state_bytes();
    return recurrence.heads * state_floats(form(), recurrence.dk, recurrence.dv) * 4;
  }
  std::vector<StatePart> state_parts(const Recurrence& recurrence) const override {
    std::vector<StatePart> parts = Backend::state_parts(recurrence);
    if (!options_.replay || recurrence.linear() == nullptr) return parts;
    const int64_t stride = state_floats(form(), recurrence.dk, recurrence.dv) * 4;
    for (StatePart& part : parts) part.stride = stride;
    parts.push_back({"log",
                     DType::kF32,
                     {recurrence.heads, kReplay - 1, recurrence.dk + recurrence.dv},
                     stride - log_floats(recurrence.dk, recurrence.dv) * 4,
                     stride});
    return parts;
  }
  int chunk() const override { return options_.chunks ? kChunk : 1; }
  Buffer allocate(int64_t bytes, Memory memory) override {
    check(bytes >= 0, "a buffer's size is not negative");
    return device_.allocate(bytes, memory);
  }
  Weight pack(HostTensor weight, HostTensor bias, Precision precision) override;
  // The whole batch at once: the device shares it out by itself.
  void run(Rows rows, int64_t, const Pass& pass) override {
    check(staged_.count == 0, "run: not from within a pass");
    if (rows.count == 0) return;
    device_.batch([&] {
      stage(rows);
      pass(*this, 0, rows.count);
    });
    staged_ = {};
  }
  void embed(Rows rows, View values, const Control* control, const Embedding& embedding,
             View out) override;
  void matmul(View x, const Weight& weight, End end, View out) override;
  void norm(View x, View residual, const Norm& norm, View out) override;
  void gated_norm(View x, const Norm& norm, const NormGate& gate, View out) override;
  void shift(Rows rows, View x, View mu, States states, View out) override;
  void convolve(Rows rows, View x, const Convolution& convolution, States states,
                View out) override;
  void features(View x, const RandomFeatures& features, View out) override;
  void recur(Rows rows, const Control* control, const Recurrence& recurrence,
             const RecurrenceInputs& inputs, States states, View out) override;
  void attend(Rows /*rows*/, const Control* /*control*/, const Attention& attention,
              const AttentionInputs& /*inputs*/, const Cache& /*cache*/, View /*out*/) override {
    check(takes(attention).ok(), "attend: the backend has said that it does not");
  }
  void sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
              SampledTo to) override;
  void score(const Head& kind, View head, View targets, View log_probs) override;
  Status takes(const Recurrence& recurrence) const override;
  Status takes(const Attention& /*attention*/) const override {
    return {Code::kFailedPrecondition, "attention has no kernel for a GPU: use backend cpu"};
  }
  FusedSteps* fused() override { return this; }
  bool takes(const FusedNetwork& network) const override {
    bool room = false;
    for_whole_kernels([&]<typename Kernel>(size_t i) {
      room = room || (whole_fits<typename Kernel::Sizes>(network) && rooms_[i][0] > 0);
    });
    return room && options_.whole && !options_.library;
  }
  void generate(Rows rows, const FusedNetwork& network, States states, Control* control,
                SampledTo to, int64_t stride, int steps) override;
  void copy(Span from, Span to) override {
    check_copy(from, to);
    if (from.bytes == 0) return;
    if (from.bytes <= kWrittenBytes && device_.must_wait(from, to)) {
      WriteArgs args = {.to = to.data, .bytes = static_cast<int>(from.bytes), .data = {}};
      std::copy_n(from.data, from.bytes, args.data);
      launch<WriteKernel>(WriteKernel::launch(), args);
    } else {
      device_.copy(from, to);
    }
  }
  void zero(Span bytes) override {
    check_zero(bytes);
    if (bytes.bytes > 0) device_.zero(bytes);
  }
  int launches() const override { return 2; }
  int preferred_steps() const override { return 16; }
  Result<bool> done(int later) override {
    if (!status_.ok()) return status_;
    return device_.done(later);
  }

 private:
  // From here to the end of run(), operations on these rows read slot and first, and freeze rows,
  // in the device's own memory: every layer reads them, and the host's is far away.
  void stage(Rows rows) {
    check((2 * int64_t{rows.count} + 1) * 4 <= kStageBytes, "run: at most 8191 rows");
    int32_t* slot = stage_.as<int32_t>();
    here_ = {slot, slot + rows.count, rows.count};
    staged_ = rows;
    longest_ = 0;
    arrays_ = 0;
    for (int row = 0; row < rows.count; ++row) {
      longest_ = std::max(longest_, rows.first[row + 1] - rows.first[row]);
    }
    launch<StageKernel>(StageKernel::launch(rows.count), {.slot = rows.slot,
                                                          .first = rows.first,
                                                          .count = rows.count,
                                                          .slot_here = slot,
                                                          .first_here = slot + rows.count});
  }
  // Where the device finds these rows: a run of those staged, or others as they are.
  Rows here(Rows rows) const {
    const int64_t begin = place(rows);
    if (begin >= staged_.count) return rows;
    return {here_.slot + begin, here_.first + begin, rows.count};
  }
  // Where they stand among those staged, or behind.
  int64_t place(Rows rows) const {
    return static_cast<int64_t>(
        (reinterpret_cast<uintptr_t>(rows.slot) - reinterpret_cast<uintptr_t>(staged_.slot)) / 4);
  }
  // As many inputs as a row may have; those of all where the host cannot see it.
  int longest(Rows rows, int inputs) const {
    return place(rows) < staged_.count ? longest_ : inputs;
  }

  // Where the next launch finds an array that every step of run() reads.
  Kept kept(const int32_t* from, int64_t count) {
    if (staged_.count == 0) return {from, nullptr};
    const auto at = [&](int i) { return copies_.as<int32_t>() + i * (kArrayBytes / 4); };
    for (int i = 0; i < arrays_; ++i) {
      if (kept_[i] == from) return {at(i), nullptr};
    }
    if (arrays_ == kArrays || count * 4 > kArrayBytes) return {from, nullptr};
    kept_[arrays_] = from;
    return {from, at(arrays_++)};
  }

  void note(const Status& status) {
    if (status_.ok()) status_ = status;
  }
  // Whether this device has room for such a launch; done() tells if not.
  bool fits(const Launch& launch, const char* instead) {
    if (launch.shared_bytes <= device_.shared_limit()) return true;
    note({Code::kFailedPrecondition,
          "the model's sizes are too large for this GPU: a block of a kernel would need " +
              std::to_string(launch.shared_bytes) + " bytes of shared memory, and has " +
              std::to_string(device_.shared_limit()) + ": use " + instead});
    return false;
  }
  // A launch of no blocks is none.
  template <typename Kernel>
  void launch(const Launch& launch, const typename Kernel::Args& args) {
    if (fits(launch, "backend cpu") && launch.blocks > 0) {
      device_.template launch<Kernel>(launch, args);
    }
  }
  template <typename Kernel>
  void launch_matmul(const MatmulArgs& args) {
    launch<Kernel>(Kernel::launch(args), args);
  }
  StateForm form() const { return options_.replay ? StateForm::kReplay : StateForm::kPlain; }
  void launch_recur(int rows, const RecurArgs& args) {
    if (args.form == StateForm::kReplay) {
      launch_recur_form<Recur<StateForm::kReplay>>(rows, args);
    } else {
      launch_recur_form<Recur<StateForm::kPlain>>(rows, args);
    }
  }
  // Whether states can be read and written 16 bytes at a time.
  template <typename Args>
  static bool is_aligned(const Args& args) {
    const auto at =
        reinterpret_cast<uintptr_t>(args.states.base) + static_cast<uintptr_t>(args.states.offset);
    return at % 16 == 0 && args.states.slot_bytes % 16 == 0 && args.dk % 4 == 0 && args.dv % 4 == 0;
  }
  // The choice looks at the shape and the layout of the states alone: never at the batch.
  template <typename Forms>
  void launch_recur_form(int rows, const RecurArgs& args) {
    const bool aligned = is_aligned(args);
    const auto as = [&]<typename Kernel>(Kernel) {
      launch<Kernel>(Kernel::launch(rows, args), args);
    };
    if (aligned && Forms::Small::fits(args.dk, args.dv)) {
      as(typename Forms::Small());
    } else if (aligned && Forms::Medium::fits(args.dk, args.dv)) {
      as(typename Forms::Medium());
    } else if (aligned && Forms::Large::fits(args.dk, args.dv)) {
      as(typename Forms::Large());
    } else if (aligned) {
      as(typename Forms::Aligned());
    } else {
      as(typename Forms::Any());
    }
  }
  template <typename Terms>
  void recur_by_rule(Rows rows, const Recurrence& recurrence, const Terms& terms,
                     const RecurrenceInputs& inputs, States states, View out);
  void plan(const Weight& weight);
  ProductArgs product_of(const Weight& weight) const;
  void matmul_by_library(View x, const Weight& weight, Activation activation, View out);
  using WholeRooms = std::array<ClusterRooms, kWholeKernels>;
  static WholeRooms rooms_of(Device& device) {
    WholeRooms rooms;
    for_whole_kernels([&]<typename Kernel>(size_t i) {
      int64_t cluster = 1;
      for (int64_t& room : rooms[i]) {
        room = device.template room<Kernel>(Kernel::launch(1, cluster));
        cluster *= 2;
      }
    });
    return rooms;
  }
  Buffer upload(const void* from, int64_t bytes) {
    Buffer buffer = device_.allocate(bytes, Memory::kDevice);
    copy({static_cast<std::byte*>(const_cast<void*>(from)), bytes}, buffer.span());
    return buffer;
  }

  static constexpr int64_t kStageBytes = 64 << 10;  // a server has at most 4,096 rows
  static constexpr int kArrays = 3;                 // values, and the two of Outputs
  static constexpr int64_t kArrayBytes = 32 << 10;  // longer ones are prompts, which are read once

  const CudaOptions options_;
  std::unique_ptr<ProductLibrary> library_;  // null: products by the kernels here
  Status status_;                            // the first thing that cannot be done; done() tells
  Device device_;
  const WholeRooms rooms_;
  Buffer workspace_, rounded_;  // the library's, and its inputs as bf16
  Buffer stage_, copies_;
  Rows staged_{};                      // by run(); count 0: none
  Rows here_{};                        // the same on the device
  int longest_ = 0;                    // inputs that one of them has
  const int32_t* kept_[kArrays] = {};  // arrays of the host's that copies_ has
  int arrays_ = 0;
};

template <typename Device>
Weight DeviceBackend<Device>::pack(HostTensor weight, HostTensor bias, Precision precision) {
  check_pack(weight, bias);
  check(precision != Precision::kInt8, "pack: not in int8, as numerics() has said");
  const bool in_rows = library_ != nullptr;
  check(!in_rows || precision != Precision::kSplit, "pack: a library has no split products");
  const std::vector<uint32_t> panels =
      in_rows                         ? plain_rows(weight, precision)
      : precision == Precision::kFp32 ? fp32_panels(weight)
                                      : bf16_panels(weight, bias, precision == Precision::kSplit);
  std::vector<float> biases((weight.rows + kPanelCols - 1) / kPanelCols * kPanelCols);
  for (int i = 0; bias.data != nullptr && i < weight.rows; ++i) biases[i] = bias.number(i);
  Weight packed;
  packed.in = weight.cols;
  packed.out = weight.rows;
  packed.precision = precision;
  packed.stored = precision == Precision::kBf16 ? DType::kBF16 : DType::kF32;
  packed.panels = upload(panels.data(), static_cast<int64_t>(panels.size()) * 4);
  packed.bias = upload(biases.data(), static_cast<int64_t>(biases.size()) * 4);
  if (in_rows) plan(packed);
  return packed;
}

template <typename Device>
ProductArgs DeviceBackend<Device>::product_of(const Weight& weight) const {
  ProductArgs args{};
  args.library = library_.get();
  args.weight = weight.panels.data();
  args.bias = weight.bias.template as<float>();
  args.weight_stride = plain_stride(weight.in, weight.precision);
  args.in = weight.in;
  args.out = weight.out;
  args.precision = weight.precision;
  args.workspace = workspace_.data();
  return args;
}

// While loading: algorithms, and room for the inputs.
template <typename Device>
void DeviceBackend<Device>::plan(const Weight& weight) {
  note(library_->plan(product_of(weight)));
  const int64_t bytes =
      weight.precision == Precision::kBf16
          ? int64_t{ProductLibrary::kMostRows} * plain_stride(weight.in, weight.precision) * 2
          : 0;
  if (bytes > rounded_.bytes()) rounded_ = device_.allocate(bytes, Memory::kDevice);
}

template <typename Device>
void DeviceBackend<Device>::matmul_by_library(View x, const Weight& weight, Activation activation,
                                              View out) {
  ProductArgs args = product_of(weight);
  args.relu = activation == Activation::kRelu;
  for (int row = 0; row < x.rows; row += ProductLibrary::kMostRows) {
    args.rows = std::min(x.rows - row, ProductLibrary::kMostRows);
    const View from = x.slice(row, args.rows);
    const View to = out.slice(row, args.rows);
    args.x = from.data;
    args.x_stride = from.stride;
    if (weight.precision == Precision::kBf16) {
      const RoundArgs round = {from.f32(), from.stride, args.rows, x.cols,
                               rounded_.template as<uint32_t>()};
      launch<RoundKernel>(RoundKernel::launch(round), round);
      args.x = rounded_.data();
      args.x_stride = args.weight_stride;
    }
    args.y = to.f32();
    args.y_stride = to.stride;
    launch<LibraryProduct>({.blocks = 1}, args);
    if (activation != Activation::kGelu) continue;
    const GeluArgs gelu = {args.y, args.y_stride, args.rows, args.out};
    launch<GeluKernel>(GeluKernel::launch(gelu), gelu);
  }
}

template <typename Device>
void DeviceBackend<Device>::embed(Rows rows, View values, const Control* control,
                                  const Embedding& embedding, View out) {
  check_embed(rows, values, embedding, out);
  check(embedding.values.type == DType::kF32 && embedding.positions.type == DType::kF32 &&
            !is_blocks(embedding.blocks),
        "embed: a GPU reads tables of fp32");
  check(embedding.scale == 1.0F, "embed: a GPU takes vectors as they are");
  launch<EmbedKernel>(EmbedKernel::launch(out.rows), {.rows = here(rows),
                                                      .values = kept(values.i32(), values.cols),
                                                      .control = control,
                                                      .embedding = embedding,
                                                      .out = out.f32(),
                                                      .out_stride = out.stride,
                                                      .out_width = out.cols});
}

template <typename Device>
void DeviceBackend<Device>::matmul(View x, const Weight& weight, End end, View out) {
  check_matmul(x, weight, end, out);
  if (library_ != nullptr) {
    check(end.activation <= Activation::kGelu && end.times.data == nullptr &&
              end.plus.data == nullptr,
          "matmul: a library's products end with relu or gelu, as takes() has said");
    matmul_by_library(x, weight, end.activation, out);
    return;
  }
  const MatmulArgs args = {.x = x.f32(),
                           .x_stride = x.stride,
                           .panels = weight.panels.data(),
                           .bias = weight.bias.template as<float>(),
                           .rows = x.rows,
                           .in = weight.in,
                           .out = weight.out,
                           .end = {.activation = end.activation,
                                   .times = end.times.f32(),
                                   .plus = end.plus.f32(),
                                   .times_stride = end.times.stride,
                                   .plus_stride = end.plus.stride},
                           .y = out.f32(),
                           .y_stride = out.stride};
  // Tiles as large as still leave every multiprocessor one. All of them sum in the same order.
  if (weight.precision == Precision::kBf16) {
    if (x.rows <= 16) {
      launch_matmul<MatmulBf16<1, 1>>(args);
    } else if (x.rows <= 256) {
      launch_matmul<MatmulBf16<1, 4>>(args);
    } else {
      launch_matmul<MatmulBf16<2, 8>>(args);
    }
  } else if (weight.precision == Precision::kSplit) {
    if (x.rows <= 256) {
      launch_matmul<MatmulBf16<1, 1, true>>(args);
    } else {
      launch_matmul<MatmulBf16<1, 4, true>>(args);
    }
  } else if (x.rows == 1) {
    launch_matmul<MatmulFp32<1>>(args);
  } else {
    launch_matmul<MatmulFp32<8>>(args);
  }
}

inline NormArgs norm_args(View x, const Norm& norm, View out) {
  return {.kind = norm.kind,
          .groups = norm.groups,
          .x = x.f32(),
          .x_stride = x.stride,
          .residual = nullptr,
          .residual_stride = 0,
          .scale = norm.scale.f32(),
          .shift = norm.shift.f32(),
          .eps = norm.eps,
          .width = x.cols / norm.groups,
          .gate = nullptr,
          .gate_stride = 0,
          .plus = nullptr,
          .plus_stride = 0,
          .activation = Activation::kNone,
          .gate_before = false,
          .out = out.f32(),
          .out_stride = out.stride};
}

template <typename Device>
void DeviceBackend<Device>::norm(View x, View residual, const Norm& norm, View out) {
  check_norm(x, residual, norm, out);
  NormArgs args = norm_args(x, norm, out);
  args.residual = residual.f32();
  args.residual_stride = residual.stride;
  launch<NormKernel>(NormKernel::launch(x.rows, args), args);
}

template <typename Device>
void DeviceBackend<Device>::gated_norm(View x, const Norm& norm, const NormGate& gate, View out) {
  check_gated_norm(x, norm, gate, out);
  NormArgs args = norm_args(x, norm, out);
  args.gate = gate.by.f32();
  args.gate_stride = gate.by.stride;
  args.plus = gate.plus.f32();
  args.plus_stride = gate.plus.stride;
  args.activation = gate.activation;
  args.gate_before = gate.before;
  launch<NormKernel>(NormKernel::launch(x.rows, args), args);
}

template <typename Device>
void DeviceBackend<Device>::shift(Rows rows, View x, View mu, States states, View out) {
  check_shift(x, mu, out);
  const ShiftArgs args = {.rows = here(rows),
                          .inputs = out.rows,
                          .x = x.f32(),
                          .x_stride = x.stride,
                          .mu = mu.f32(),
                          .mu_stride = mu.stride,
                          .mixes = mu.rows,
                          .width = x.cols,
                          .states = states,
                          .out = out.f32(),
                          .out_stride = out.stride};
  launch<ShiftKernel>(ShiftKernel::launch(args), args);
}

template <typename Device>
void DeviceBackend<Device>::convolve(Rows rows, View x, const Convolution& convolution,
                                     States states, View out) {
  check_convolve(x, convolution, out);
  const ConvolveArgs args = {.rows = here(rows),
                             .inputs = out.rows,
                             .x = x.f32(),
                             .x_stride = x.stride,
                             .weight = convolution.weight.f32(),
                             .weight_stride = convolution.weight.stride,
                             .bias = convolution.bias.f32(),
                             .activation = convolution.activation,
                             .taps = convolution.taps(),
                             .width = x.cols,
                             .states = states,
                             .out = out.f32(),
                             .out_stride = out.stride};
  launch<ConvolveKernel>(ConvolveKernel::launch(args), args);
}

template <typename Device>
void DeviceBackend<Device>::features(View x, const RandomFeatures& features, View out) {
  check_features(x, features, out);
  const FeatureArgs args = {.features = features,
                            .scale = features.scale(),
                            .constant = features.constant(),
                            .x = x.f32(),
                            .x_stride = x.stride,
                            .blocks = x.cols / features.omega.rows,
                            .out = out.f32(),
                            .out_stride = out.stride};
  launch<FeaturesKernel>(FeaturesKernel::launch(x.rows, args), args);
}

template <typename Device>
Status DeviceBackend<Device>::takes(const Recurrence& recurrence) const {
  if (recurrence.linear() != nullptr) return {};
  if (options_.library || options_.replay || options_.chunks) {
    return {Code::kFailedPrecondition,
            "on a GPU only linear transformers take kernels cublas, state replay and prompts "
            "chunks: use kernels own, gpu_state plain and prompts steps"};
  }
  if (recurrence.rule() == Rule::kGated || recurrence.rule() == Rule::kMamba1) {
    return {Code::kFailedPrecondition,
            "the recurrence of this family has no kernel for a GPU: use backend cpu"};
  }
  return {};
}

template <typename Device>
template <typename Terms>
void DeviceBackend<Device>::recur_by_rule(Rows rows, const Recurrence& recurrence,
                                          const Terms& terms, const RecurrenceInputs& inputs,
                                          States states, View out) {
  const auto matrix = [](View view) { return InputMatrix{view.f32(), view.stride}; };
  RuleArgs args{};
  args.rows = here(rows);
  args.inputs = out.rows;
  args.q = matrix(inputs.q);
  args.k = matrix(inputs.k);
  args.v = matrix(inputs.v);
  args.decay = matrix(inputs.decay);
  args.heads = recurrence.heads;
  args.key_heads = recurrence.key_heads > 0 ? recurrence.key_heads : recurrence.heads;
  args.dk = recurrence.dk;
  args.dv = recurrence.dv;
  args.states = states;
  args.out = out.f32();
  args.out_stride = out.stride;
  if constexpr (Terms::kRule == Rule::kRwkv7) {
    args.rate = matrix(inputs.rate);
    args.first = matrix(inputs.first);
    args.mix = matrix(inputs.mix);
    args.eps = terms.eps;
    args.k_k = terms.k_k.f32();
    args.k_a = terms.k_a.f32();
    args.r_k = terms.r_k.f32();
    args.bonus = inputs.bonus.f32();
    args.bonus_stride = inputs.bonus.stride;
  } else {
    args.dt_rate = terms.dt_rate.f32();
    args.dt_bias = terms.dt_bias.f32();
    args.skip = terms.skip.f32();
    args.dt_least = terms.dt_least;
    args.dt_most = terms.dt_most;
  }
  const auto as = [&]<typename Kernel>(Kernel) {
    launch<Kernel>(Kernel::launch(rows.count, args), args);
  };
  using Forms = RuleRecur<Terms::kRule>;
  if (is_aligned(args) && Forms::Medium::fits(args.dk, args.dv)) {
    as(typename Forms::Medium());
  } else if (is_aligned(args) && Forms::Large::fits(args.dk, args.dv)) {
    as(typename Forms::Large());
  } else {
    as(typename Forms::Any());
  }
}

template <typename Device>
void DeviceBackend<Device>::recur(Rows rows, const Control* control, const Recurrence& recurrence,
                                  const RecurrenceInputs& inputs, States states, View out) {
  check_recur(recurrence, inputs, out);
  check(takes(recurrence).ok(), "recur: the backend has said that it does not");
  if (const auto* const rwkv7 = std::get_if<Rwkv7Terms>(&recurrence.terms)) {
    return recur_by_rule(rows, recurrence, *rwkv7, inputs, states, out);
  }
  if (const auto* const mamba2 = std::get_if<Mamba2Terms>(&recurrence.terms)) {
    return recur_by_rule(rows, recurrence, *mamba2, inputs, states, out);
  }
  const auto& linear = std::get<LinearTerms>(recurrence.terms);
  // What a gate forgets is not in a log, nor in a chunk's sums.
  if (linear.gated && (options_.replay || options_.chunks)) {
    note({Code::kFailedPrecondition,
          "a model with a gate keeps its state plain and takes prompts in steps: use gpu_state "
          "plain "
          "and prompts steps"});
    return;
  }
  RecurArgs args = {.rows = here(rows),
                    .control = control,
                    .part = Part::kAll,
                    .form = form(),
                    .inputs = out.rows,
                    .q = inputs.q.f32(),
                    .k = inputs.k.f32(),
                    .v = inputs.v.f32(),
                    .q_stride = inputs.q.stride,
                    .k_stride = inputs.k.stride,
                    .v_stride = inputs.v.stride,
                    .gate = linear.gated ? inputs.gate.f32() : nullptr,
                    .gate_stride = inputs.gate.stride,
                    .map = linear.map,
                    .heads = recurrence.heads,
                    .dk = recurrence.dk,
                    .dv = recurrence.dv,
                    .eps = linear.eps,
                    .states = states,
                    .out = out.f32(),
                    .out_stride = out.stride};
  // A chunk without room is refused at the first step, which is while loading. Where no row can
  // have a whole one, all goes by positions: the same bits, in one launch.
  const Launch chunks = ChunkKernel::launch(rows.count, args);
  if (!options_.chunks || !fits(chunks, "prompts steps") || longest(rows, args.inputs) < kChunk) {
    launch_recur(rows.count, args);
    return;
  }
  args.part = Part::kBefore;
  launch_recur(rows.count, args);
  launch<ChunkKernel>(chunks, args);
  args.part = Part::kBehind;
  launch_recur(rows.count, args);
}

template <typename Device>
void DeviceBackend<Device>::sample(Rows rows, Outputs outputs, const Head& kind, View head,
                                   Control* control, SampledTo to) {
  check_head(kind, head);
  check(outputs.recent.room == 0 && outputs.recent.penalized == nullptr,
        "sample: recent values and penalties are the CPU's");
  const SampleArgs args = {.rows = here(rows),
                           .head_row = kept(outputs.head_row, rows.count),
                           .pending = kept(outputs.pending, rows.count),
                           .kind = kind,
                           .head = head.f32(),
                           .head_stride = head.stride,
                           .head_rows = head.rows,
                           .control = control,
                           .to = to};
  launch<SampleKernel>(SampleKernel::launch(args), args);
}

template <typename Device>
void DeviceBackend<Device>::score(const Head& kind, View head, View targets, View log_probs) {
  check_score(kind, head, targets, log_probs);
  const ScoreArgs args = {.kind = kind,
                          .head = head.f32(),
                          .head_stride = head.stride,
                          .targets = targets.i32(),
                          .log_probs = log_probs.f32(),
                          .rows = head.rows};
  launch<ScoreKernel>(ScoreKernel::launch(args), args);
}

template <typename Device>
void DeviceBackend<Device>::generate(Rows rows, const FusedNetwork& network, States states,
                                     Control* control, SampledTo to, int64_t stride, int steps) {
  check(states.slot_bytes % 16 == 0 && states.offset % 16 == 0, "generate: states in steps of 16");
  check(steps > 0, "generate: one step or more");
  WholeArgs args = whole_args(network);
  args.slot = here(rows).slot;
  args.rows = rows.count;
  args.steps = steps;
  args.states = TileStates::of(form(), states, network.recurrence.linear()->eps);
  args.control = control;
  args.to = to;
  args.to_stride = stride;
  for_whole_kernels([&]<typename Kernel>(size_t i) {
    using Sizes = typename Kernel::Sizes;
    if (!whole_fits<Sizes>(network)) return;
    const WholeShape shape = whole_shape(rows.count, {options_.cluster, options_.together},
                                         rooms_[i], {Sizes::kWidth, Sizes::kHeads, Sizes::kFfn});
    args.tile_rows = shape.tile_rows;
    args.ranks_log = shape.ranks_log;
    launch<Kernel>(Kernel::launch(shape.clusters, shape.cluster()), args);
  });
}

}  // namespace runnel::cuda
