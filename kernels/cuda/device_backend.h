// The operations of kernels/backend.h as launches of the kernels here: the whole CUDA backend
// except the runtime. It is a template over the device, so that tests run it on the host.
//
// A Device offers
//   name()                          the part of the numerics id before the precision
//   allocate(bytes, memory)         zeroed memory, aligned to 64 bytes; throws std::bad_alloc
//   free_memory()                   about the bytes that allocate() can still provide
//   shared_limit()                  the bytes of shared memory that a block can have
//   copy(from, to), zero(bytes)     run in order with the launches
//   must_wait(from, to)             whether copy() returns only after the copy, because `from` is
//                                   pageable memory of the host
//   launch<Kernel>(launch, args)    enqueues a launch of a kernel (launch.h)
//   batch(enqueue)                  calls enqueue(), which only launches and allocates, and
//                                   enqueues its launches as one unit
//   done(later)                     as Backend::done(), but `later` counts calls of batch(), and
//                                   is 0 or 1
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/backend.h"
#include "kernels/checks.h"
#include "kernels/cuda/attend_launch.h"
#include "kernels/cuda/chunks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/experts.h"
#include "kernels/cuda/features.h"
#include "kernels/cuda/head.h"
#include "kernels/cuda/library_products.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/penalize.h"
#include "kernels/cuda/product_launch.h"
#include "kernels/cuda/product_library.h"
#include "kernels/cuda/recur_launch.h"
#include "kernels/cuda/shift.h"
#include "kernels/cuda/stage.h"
#include "kernels/cuda/staged_rows.h"
#include "kernels/cuda/whole.h"
#include "kernels/cuda/whole_launch.h"
#include "kernels/fused_network.h"

namespace runnel::cuda {

// OK unless an option is set that only linear transformers take.
inline Status check_default(const CudaOptions& options) {
  if (!options.library && !options.replay && !options.chunks) return {};
  return {Code::kFailedPrecondition,
          "on a GPU only linear transformers take kernels cublas, gpu_state replay and prompts "
          "chunks: use kernels own, gpu_state plain and prompts steps"};
}

template <typename Device>
class DeviceBackend final : public Backend, public FusedSteps {
 public:
  template <typename... Arguments>
  explicit DeviceBackend(const CudaOptions& options, Arguments&&... arguments)
      : options_(options),
        device_(std::forward<Arguments>(arguments)...),
        rooms_(whole_rooms(device_)),
        staged_(device_.allocate(StagedRows::kRowsBytes, Memory::kDevice),
                device_.allocate(StagedRows::kArrays * StagedRows::kArrayBytes, Memory::kDevice)) {}

  // To be called before the first weight is packed. From then on, this library computes products.
  void use(std::unique_ptr<ProductLibrary> library) {
    products_.use(std::move(library),
                  device_.allocate(ProductLibrary::kWorkspaceBytes, Memory::kDevice));
  }

  DeviceKind device() const override { return DeviceKind::kCuda; }
  std::string numerics(Precision precision) const override {
    // kInt8 is only for a CPU, and kSplit not for whole models. A library has no blocks.
    const bool is_blocks = precision == Precision::kBlocks;
    if (is_blocks ? options_.library : precision >= Precision::kInt8) return "";
    std::string id = device_.name() + (is_blocks                       ? "/blocks/block32"
                                       : precision == Precision::kBf16 ? "/bf16/step"
                                                                       : "/fp32/step");
    if (options_.library) id += "+cublas";
    if (options_.replay) id += "+replay" + std::to_string(kReplay);
    if (options_.chunks) id += "+chunks" + std::to_string(kChunk);
    return id;
  }
  // The library's order of sums depends on the number of rows.
  bool batch_changes_bits() const override { return options_.library; }
  Precision preferred() const override { return Precision::kBf16; }
  Precision precise(Precision of) const override {
    return of == Precision::kBf16 && !products_.are_used() ? Precision::kSplit : Precision::kFp32;
  }
  bool takes_blocks(StoredType type) const override { return has_block_products(type); }
  int64_t free_memory() const override { return device_.free_memory(); }
  int64_t state_bytes(const Recurrence& recurrence) const override {
    if (recurrence.linear() == nullptr) return recurrence.state_bytes();
    return recurrence.heads * state_floats(form_, recurrence.dk, recurrence.dv) * 4;
  }
  std::vector<StatePart> state_parts(const Recurrence& recurrence) const override {
    std::vector<StatePart> parts = Backend::state_parts(recurrence);
    if (!options_.replay || recurrence.linear() == nullptr) return parts;
    const int64_t stride = state_floats(form_, recurrence.dk, recurrence.dv) * 4;
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
  // Runs the whole batch at once, because the device divides the work itself.
  void run(Rows rows, int64_t, const Pass& pass) override {
    check(staged_.is_empty(), "run: not from within a pass");
    if (rows.count == 0) return;
    device_.batch([&] {
      launch<StageKernel>(StageKernel::launch(rows.count), staged_.stage(rows));
      pass(*this, 0, rows.count);
    });
    staged_.clear();
  }
  void embed(Rows rows, View values, const Control* control, const Embedding& embedding,
             View out) override;
  void matmuls(std::span<const Product> products) override;
  Buffer expert_table(const Experts& experts) override {
    const std::vector<ExpertWeight> table = expert_weights(experts);
    return upload(table.data(), std::ssize(table) * int64_t{sizeof(ExpertWeight)});
  }
  void experts(View x, View scores, const Experts& experts, const ExpertRoom& room,
               View out) override;
  void norm(View x, View residual, const Norm& norm, View out) override;
  void gated_norm(View x, const Norm& norm, const NormGate& gate, View out) override;
  void shift(Rows rows, View x, View mu, States states, View out) override;
  void convolves(Rows rows, std::span<const Convolved> all) override;
  void features(View x, const RandomFeatures& features, View out) override;
  void recur(Rows rows, const Control* control, const Recurrence& recurrence,
             const RecurrenceInputs& inputs, States states, View out) override;
  void attend(Rows rows, const Control* control, const Attention& attention,
              const AttentionInputs& inputs, const Cache& cache, View out) override;
  void sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
              SampledTo to) override;
  void score(const Head& kind, View head, View targets, View log_probs) override;
  Status takes(const Recurrence& recurrence) const override {
    return recurrence.linear() != nullptr ? Status() : check_default(options_);
  }
  Status takes(const Attention& /*attention*/) const override { return check_default(options_); }
  FusedSteps* fused() override { return this; }
  bool takes(const FusedNetwork& network) const override {
    bool room = false;
    for_whole_kernels([&]<typename Kernel>(size_t i) {
      room = room || (whole_fits<typename Kernel::Sizes>(network) && has_room(rooms_[i]));
    });
    return room && options_.whole && !options_.library;
  }
  void generate(Rows rows, const FusedNetwork& network, States states, Control* control,
                const Recent& recent, SampledTo to, int64_t stride, int steps) override;
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
  void note(const Status& status) {
    if (status_.ok()) status_ = status;
  }
  // A copy of host memory on the device.
  Buffer upload(const void* from, int64_t bytes) {
    Buffer buffer = device_.allocate(bytes, Memory::kDevice);
    copy({static_cast<std::byte*>(const_cast<void*>(from)), bytes}, buffer.span());
    return buffer;
  }
  // Whether this device has room for a launch. If not, done() reports it.
  bool fits(const Launch& launch, const char* instead) {
    if (launch.shared_bytes <= device_.shared_limit()) return true;
    note({Code::kFailedPrecondition,
          "the model's sizes are too large for this GPU: a block of a kernel would need " +
              std::to_string(launch.shared_bytes) + " bytes of shared memory, and has " +
              std::to_string(device_.shared_limit()) + ": use " + instead});
    return false;
  }
  // Launches a kernel. Does nothing if there are no blocks.
  template <typename Kernel>
  void launch(const Launch& launch, const typename Kernel::Args& args) {
    if (fits(launch, "backend cpu") && launch.blocks > 0) {
      device_.template launch<Kernel>(launch, args);
    }
  }
  void launch_recur(int rows, const RecurArgs& args) {
    with_recur_kernel(
        args, [&]<typename Kernel>(Kernel) { launch<Kernel>(Kernel::launch(rows, args), args); });
  }
  template <typename Terms>
  void recur_by_rule(Rows rows, const Recurrence& recurrence, const Terms& terms,
                     const RecurrenceInputs& inputs, States states, View out);

  const CudaOptions options_;
  const StateForm form_ = options_.replay ? StateForm::kReplay : StateForm::kPlain;
  LibraryProducts products_;
  Status status_;  // the first launch or operation that failed; done() reports it
  Device device_;
  const WholeRooms rooms_;
  StagedRows staged_;
  SegmentSums segment_sums_;
};

template <typename Device>
Weight DeviceBackend<Device>::pack(HostTensor weight, HostTensor bias, Precision precision) {
  check_pack(weight, bias);
  check(precision != Precision::kInt8, "pack: in a precision that products have kernels for");
  check(precision == Precision::kBlocks || !is_blocks(weight.stored), "pack: blocks for kBlocks");
  const bool in_rows = products_.are_used();
  check(!in_rows || precision <= Precision::kBf16, "pack: a library has products in fp32 and bf16");
  if (precision == Precision::kBlocks && !is_blocks(weight.stored)) precision = Precision::kFp32;
  const std::vector<uint32_t> panels =
      in_rows                           ? plain_rows(weight, precision)
      : precision == Precision::kBlocks ? block_tiles(weight)
      : precision == Precision::kFp32   ? fp32_panels(weight)
                                        : bf16_panels(weight, bias, precision == Precision::kSplit);
  std::vector<float> biases((weight.rows + kPanelCols - 1) / kPanelCols * kPanelCols);
  for (int i = 0; bias.data != nullptr && i < weight.rows; ++i) biases[i] = bias.number(i);
  Weight packed;
  packed.in = weight.cols;
  packed.out = weight.rows;
  packed.precision = precision;
  packed.stored = precision == Precision::kBf16 ? DType::kBF16 : DType::kF32;
  if (precision == Precision::kBlocks) packed.blocks = weight.stored;
  packed.panels = upload(panels.data(), static_cast<int64_t>(panels.size()) * 4);
  packed.bias = upload(biases.data(), static_cast<int64_t>(biases.size()) * 4);
  if (in_rows) note(products_.plan(packed, device_));
  return packed;
}

template <typename Device>
void DeviceBackend<Device>::embed(Rows rows, View values, const Control* control,
                                  const Embedding& embedding, View out) {
  check_embed(rows, values, embedding, out);
  check(embedding.values.type == DType::kF32 && embedding.positions.type == DType::kF32 &&
            !is_blocks(embedding.blocks),
        "embed: a GPU reads tables of fp32");
  launch<EmbedKernel>(EmbedKernel::launch(out.rows),
                      {.rows = staged_.here(rows),
                       .values = staged_.kept(values.i32(), values.cols),
                       .control = control,
                       .embedding = embedding,
                       .out = out.f32(),
                       .out_stride = out.stride,
                       .out_width = out.cols});
}

template <typename Device>
void DeviceBackend<Device>::matmuls(std::span<const Product> products) {
  const auto use = [&]<typename Kernel>(Kernel, const Launch& at,
                                        const typename Kernel::Args& args) {
    launch<Kernel>(at, args);
  };
  for (const Product& one : products) {
    check_product(one);
    if (!products_.are_used()) continue;
    const End& end = one.end;
    check(end.activation <= Activation::kGelu && end.times.data == nullptr &&
              end.plus.data == nullptr && one.up == nullptr,
          "matmul: a library's products end with relu or gelu, as takes() has said");
    products_.multiply(one.x, *one.weight, end.activation, one.out, use);
  }
  if (products_.are_used()) return;
  launch_products(products,
                  [&]<typename Kernel>(Kernel kernel, const typename Kernel::Args& group) {
                    use(kernel, Kernel::launch(group), group);
                  });
}

template <typename Device>
void DeviceBackend<Device>::experts(View x, View scores, const Experts& experts,
                                    const ExpertRoom& room, View out) {
  check_experts(x, scores, experts, room, out);
  const RouteArgs route = {.scores = scores.f32(),
                           .scores_stride = scores.stride,
                           .experts = scores.cols,
                           .router = experts.router,
                           .used = room.used.i32(),
                           .shares = room.shares.f32()};
  launch<RouteKernel>(RouteKernel::launch(x.rows), route);
  launch_experts(x, experts, room, [&]<typename Kernel>(Kernel, const typename Kernel::Args& args) {
    launch<Kernel>(Kernel::launch(args), args);
  });
  const ExpertSumArgs sum = {.y = room.wide.f32(),
                             .shares = room.shares.f32(),
                             .used = experts.router.used(),
                             .columns = x.cols,
                             .factor = experts.factor,
                             .out = out.f32(),
                             .out_stride = out.stride};
  launch<ExpertSumKernel>(ExpertSumKernel::launch(x.rows, sum), sum);
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
  const ShiftArgs args = {.rows = staged_.here(rows),
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
void DeviceBackend<Device>::convolves(Rows rows, std::span<const Convolved> all) {
  using Together = Grouped<ConvolveKernel>;
  for (size_t begin = 0; begin < all.size(); begin += Together::Args::kMost) {
    Together::Args group;
    const size_t count = std::min<size_t>(all.size() - begin, Together::Args::kMost);
    for (const Convolved& one : all.subspan(begin, count)) {
      check_convolve(one.x, *one.convolution, one.out);
      const ConvolveArgs args = convolve_args(staged_.here(rows), one);
      group.add(args, ConvolveKernel::launch(args).blocks);
    }
    launch<Together>(Together::launch(group), group);
  }
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
template <typename Terms>
void DeviceBackend<Device>::recur_by_rule(Rows rows, const Recurrence& recurrence,
                                          const Terms& terms, const RecurrenceInputs& inputs,
                                          States states, View out) {
  const RuleArgs args = rule_args(staged_.here(rows), recurrence, terms, inputs, states, out);
  with_rule_kernel<Terms::kRule>(args, [&]<typename Kernel>(Kernel) {
    launch<Kernel>(Kernel::launch(rows.count, args), args);
  });
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
  if (const auto* const mamba1 = std::get_if<Mamba1Terms>(&recurrence.terms)) {
    const auto args = mamba1_args(staged_.here(rows), recurrence, *mamba1, inputs, states, out);
    return with_mamba1_kernel(
        args, [&]<typename Kernel>(Kernel) { launch<Kernel>(Kernel::launch(args), args); });
  }
  if (const auto* const gated = std::get_if<GatedTerms>(&recurrence.terms)) {
    const auto args = gated_args(staged_.here(rows), recurrence, *gated, inputs, states, out);
    return with_gated_kernel(args, [&]<typename Kernel>(Kernel) {
      launch<Kernel>(Kernel::launch(rows.count, args), args);
    });
  }
  const auto& linear = std::get<LinearTerms>(recurrence.terms);
  // A log and the sums of a chunk do not contain the factors of a gate.
  if (linear.gated && (options_.replay || options_.chunks)) {
    note({Code::kFailedPrecondition,
          "a model with a gate keeps its state plain and takes prompts in steps: use gpu_state "
          "plain "
          "and prompts steps"});
    return;
  }
  RecurArgs args = {.rows = staged_.here(rows),
                    .control = control,
                    .part = Part::kAll,
                    .form = form_,
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
  // If a block has too little shared memory for chunks, the first step fails, which runs while the
  // model loads. If no row can have a whole chunk, all inputs are computed position by position,
  // with the same bits and in one launch.
  const Launch chunks = ChunkKernel::launch(rows.count, args);
  if (!options_.chunks || !fits(chunks, "prompts steps") ||
      staged_.longest(rows, args.inputs) < kChunk) {
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
void DeviceBackend<Device>::attend(Rows rows, const Control* control, const Attention& attention,
                                   const AttentionInputs& inputs, const Cache& cache, View out) {
  check_attend(attention, inputs, cache, out);
  check(takes(attention).ok(), "attend: the backend has said that it does not");
  const AttendArgs args = attend_args(staged_.here(rows), control, attention, inputs, cache, out);
  const AttendRoom room = {staged_.longest(rows, args.inputs), device_.shared_limit()};
  const auto use = [&]<typename Kernel>(Kernel, const AttendArgs& with) {
    launch<Kernel>(Kernel::launch(with), with);
  };
  const auto sums = [&] { return segment_sums_.on(device_); };
  if (attention.stored == DType::kBF16) {
    launch_attention<uint16_t>(args, room, sums, use);
  } else {
    launch_attention<float>(args, room, sums, use);
  }
}

template <typename Device>
void DeviceBackend<Device>::sample(Rows rows, Outputs outputs, const Head& kind, View head,
                                   Control* control, SampledTo to) {
  check_head(kind, head);
  check((outputs.recent.room == 0 && outputs.recent.penalties == nullptr) ||
            kind.kind == HeadKind::kCategorical,
        "sample: recent values and penalties are of categorical heads");
  SampleArgs args = {.rows = staged_.here(rows),
                     .head_row = staged_.kept(outputs.head_row, rows.count),
                     .pending = staged_.kept(outputs.pending, rows.count),
                     .kind = kind,
                     .head = head.f32(),
                     .head_stride = head.stride,
                     .head_rows = head.rows,
                     .control = control,
                     .to = to,
                     .recent = outputs.recent};
  args.recent.inputs = staged_.nearest(outputs.recent.inputs);
  if (outputs.recent.penalties == nullptr) {
    launch<SampleKernel>(SampleKernel::launch(args), args);
  } else {
    launch<PenalizedKernel>(PenalizedKernel::launch(args), args);
  }
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
                                     Control* control, const Recent& recent, SampledTo to,
                                     int64_t stride, int steps) {
  check(recent.penalties == nullptr, "generate: no row has penalties");
  check(states.slot_bytes % 16 == 0 && states.offset % 16 == 0, "generate: states in steps of 16");
  check(steps > 0, "generate: one step or more");
  WholeArgs args = whole_args(network);
  args.slot = staged_.here(rows).slot;
  args.rows = rows.count;
  args.steps = steps;
  args.states = TileStates::of(form_, states, network.recurrence.linear()->eps);
  args.control = control;
  args.recent = recent;
  args.to = to;
  args.to_stride = stride;
  for_whole_kernels([&]<typename Kernel>(size_t i) {
    using Sizes = typename Kernel::Sizes;
    if (!whole_fits<Sizes>(network)) return;
    const WholeShape shape =
        whole_shape(rows.count, {options_.cluster, options_.together}, rooms_[i],
                    {Sizes::kWidth, Sizes::kHeads, Sizes::kFfn}, options_.costs);
    args.tile_rows = shape.tile_rows;
    args.ranks_log = shape.ranks_log;
    launch<Kernel>(Kernel::launch(shape.clusters, shape.cluster()), args);
  });
}

}  // namespace runnel::cuda
