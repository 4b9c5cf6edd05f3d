#include "kernels/cpu/operations.h"

#include <algorithm>
#include <cstring>

#include "kernels/blocks.h"
#include "kernels/checks.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/sampling.h"
#include "kernels/philox.h"
#include "kernels/sinusoids.h"

namespace runnel {
namespace {

using cpu::divide_up;

// The number of columns of a row that shift() and convolve() work on at a time.
constexpr int kBlockColumns = 256;

// The number of inputs of a prompt whose queries attend together.
constexpr int kAttendingInputs = 8;

// Prefetch distance, in heads.
constexpr int kHeadsAhead = 2;

// Checks what an operation's own check leaves out: `out` has a row for each input of the rows.
void check_inputs(Rows rows, View out, const char* what) {
  check(rows.count == 0 || rows.inputs() == out.rows, what);
}

}  // namespace

std::string CpuOperations::numerics(Precision precision) const {
  if (precision == Precision::kSplit) return "";
  // The instructions for bf16 do not change the bits of fp32, and tiles add in the same order as
  // vectors.
  const bool own = precision == Precision::kBf16 && kernels_.step != cpu::kStepInputs;
  const Isa isa = own ? isa_ : std::min(isa_, Isa::kAvx512);
  return std::string("cpu/") + isa_name(isa) +
         (precision == Precision::kFp32     ? "/fp32/step"
          : precision == Precision::kBlocks ? "/blocks/block32"
          : precision == Precision::kInt8   ? "/int8/step32"
          : own                             ? "/bf16/step"
                                            : "/bf16/step32");
}

Buffer CpuOperations::allocate(int64_t bytes, Memory) {
  check(bytes >= 0, "a buffer's size is not negative");
  return cpu::zeroed_memory(bytes);
}

void CpuOperations::copy(Span from, Span to) {
  check_copy(from, to);
  if (from.bytes > 0) std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes));
}

void CpuOperations::zero(Span bytes) {
  check_zero(bytes);
  if (bytes.bytes > 0) std::memset(bytes.data, 0, static_cast<size_t>(bytes.bytes));
}

void CpuOperations::grow_scratch(int64_t floats) {
  if (scratch_.bytes() < floats * 4) scratch_ = allocate(floats * 4, Memory::kDevice);
}

// ---- embed --------------------------------------------------------------------------------------

namespace {

void embed_input(const Embedding& embedding, int32_t value, int64_t position, float* out) {
  check(value >= 0 && value < embedding.values.rows, "embed: a value is one of the vocabulary");
  const int width = embedding.values.cols;
  if (is_blocks(embedding.blocks)) {
    widen_blocks(embedding.blocks, static_cast<const std::byte*>(embedding.values.data),
                 int64_t{value} * width, {out, static_cast<size_t>(width)});
  } else if (embedding.values.type == DType::kF32) {
    std::memcpy(out, embedding.values.f32(value), static_cast<size_t>(width) * 4);
  } else {
    for (int c = 0; c < width; ++c) out[c] = embedding.values.number(value, c);
  }
  if (embedding.scale != 1.0F) {
    for (int c = 0; c < width; ++c) out[c] *= embedding.scale;
  }
  if (embedding.position == PositionKind::kNone) return;
  const bool add = embedding.combine == Combine::kAdd;
  float* to = add ? out : out + width;
  const auto place = [&](int c, float at) { to[c] = add ? to[c] + at : at; };
  const int columns = embedding.position_width;
  if (embedding.position == PositionKind::kTable) {
    check(position >= 0 && position < embedding.positions.rows,
          "embed: a position is one of the table");
    for (int c = 0; c < columns; ++c) place(c, embedding.positions.number(position, c));
    return;
  }
  for (int c = 0; c < columns; c += 2) {
    const auto [sine, cosine] = sinusoids(position, c / 2, columns);
    place(c, sine);
    if (c + 1 < columns) place(c + 1, cosine);
  }
}

}  // namespace

void CpuOperations::embed(Rows rows, View values, const Control* control,
                          const Embedding& embedding, View out) {
  check_embed(rows, values, embedding, out);
  check_inputs(rows, out, "embed: the rows' inputs are out's");
  const int64_t each = embedding.position == PositionKind::kSinusoidal
                           ? embedding.position_width * 13
                       : is_blocks(embedding.blocks) ? embedding.values.cols * 3 / 2
                                                     : embedding.values.cols / 8;
  sharing_.split(rows.count, out.rows * (each + 20), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      const int32_t slot = rows.slot[row];
      const int first = rows.first[row] - rows.first[0];
      for (int input = first; input < rows.first[row + 1] - rows.first[0]; ++input) {
        if (slot < 0) {
          std::memset(out.f32(input), 0, static_cast<size_t>(out.cols) * 4);
          continue;
        }
        const int32_t given = values.i32()[input];
        embed_input(embedding, given == kNoValue ? control[slot].pending : given,
                    control[slot].position + input - first, out.f32(input));
      }
    }
  });
}

// ---- layers -------------------------------------------------------------------------------------

namespace {

cpu::NormArgs norm_args(View x, const Norm& norm, View out) {
  return {.kind = norm.kind,
          .groups = norm.groups,
          .x = matrix(x),
          .residual = {},
          .scale = norm.scale.f32(),
          .shift = norm.shift.f32(),
          .eps = norm.eps,
          .width = x.cols,
          .gate = {},
          .plus = {},
          .gate_with = Activation::kNone,
          .gate_before = false,
          .out = out.f32(),
          .out_stride = out.stride};
}

float* state_of(States states, int32_t slot) {
  return reinterpret_cast<float*>(states.base + slot * states.slot_bytes + states.offset);
}

}  // namespace

void CpuOperations::norm(View x, View residual, const Norm& norm, View out) {
  check_norm(x, residual, norm, out);
  cpu::NormArgs args = norm_args(x, norm, out);
  args.residual = matrix(residual);
  sharing_.split(x.rows, int64_t{x.rows} * (x.cols / 4 + 30),
                 [&](int begin, int end) { kernels_.norm(args, begin, end); });
}

void CpuOperations::gated_norm(View x, const Norm& norm, const NormGate& gate, View out) {
  check_gated_norm(x, norm, gate, out);
  cpu::NormArgs args = norm_args(x, norm, out);
  args.gate = matrix(gate.by);
  args.plus = matrix(gate.plus);
  args.gate_with = gate.activation;
  args.gate_before = gate.before;
  sharing_.split(x.rows, int64_t{x.rows} * (x.cols + 30),
                 [&](int begin, int end) { kernels_.norm(args, begin, end); });
}

// Calls body(row, first column, last column) for each block of columns of each row that is not
// frozen. `each` is the time of all inputs and columns, in nanoseconds.
template <typename F>
void CpuOperations::split_columns(Rows rows, int columns, int64_t each, const F& body) {
  const int blocks = divide_up(columns, kBlockColumns);
  sharing_.split(rows.count * blocks, each, [&](int begin, int end) {
    for (int item = begin; item < end; ++item) {
      const int row = item / blocks;
      const int column = item % blocks * kBlockColumns;
      if (rows.slot[row] < 0) continue;
      body(row, column, std::min(column + kBlockColumns, columns));
    }
  });
}

void CpuOperations::shift(Rows rows, View x, View mu, States states, View out) {
  check_shift(x, mu, out);
  check_inputs(rows, out, "shift: the rows' inputs are out's");
  split_columns(rows, x.cols, int64_t{out.rows} * out.cols / 4, [&](int row, int begin, int end) {
    const int input = rows.first[row] - rows.first[0];
    kernels_.shift({.x = {x.f32(input), x.stride},
                    .mu = matrix(mu),
                    .mixes = mu.rows,
                    .width = x.cols,
                    .inputs = rows.first[row + 1] - rows.first[row],
                    .state = state_of(states, rows.slot[row]),
                    .out = out.f32(input),
                    .out_stride = out.stride},
                   begin, end);
  });
}

void CpuOperations::convolves(Rows rows, std::span<const Convolved> all) {
  for (const Convolved& one : all) convolve_one(rows, one);
}

void CpuOperations::convolve_one(Rows rows, const Convolved& one) {
  check_convolve(one.x, *one.convolution, one.out);
  check_inputs(rows, one.out, "convolve: the rows' inputs are out's");
  const int64_t each = int64_t{one.out.rows} * one.out.cols;
  split_columns(rows, one.x.cols, each, [&](int row, int begin, int end) {
    const int input = rows.first[row] - rows.first[0];
    kernels_.convolve({.x = {one.x.f32(input), one.x.stride},
                       .weight = matrix(one.convolution->weight),
                       .bias = one.convolution->bias.f32(),
                       .activation = one.convolution->activation,
                       .taps = one.convolution->taps(),
                       .channels = one.x.cols,
                       .inputs = rows.first[row + 1] - rows.first[row],
                       .state = state_of(one.states, rows.slot[row]),
                       .out = one.out.f32(input),
                       .out_stride = one.out.stride},
                      begin, end);
  });
}

void CpuOperations::features(View x, const RandomFeatures& features, View out) {
  check_features(x, features, out);
  const View omega = features.omega;
  const cpu::FeatureArgs args = {.map = features.map,
                                 .kernel = features.kernel,
                                 .x = x.f32(),
                                 .x_stride = x.stride,
                                 .blocks = x.cols / omega.rows,
                                 .dk = omega.rows,
                                 .omega = omega.f32(),
                                 .projections = omega.cols,
                                 .size = features.size(),
                                 .sigma = features.sigma.f32(),
                                 .sigma_stride = features.sigma.stride,
                                 .heads = features.sigma.rows,
                                 .scale = features.scale(),
                                 .constant = features.constant(),
                                 .smoothing = features.smoothing,
                                 .out = out.f32(),
                                 .out_stride = out.stride};
  const int64_t each = int64_t{omega.cols} * (omega.rows + 40) / 30 + 20;
  const int count = x.rows * args.blocks;
  sharing_.split(count, count * each,
                 [&](int begin, int end) { kernels_.features(args, begin, end); });
}

Status CpuOperations::takes(const Recurrence& recurrence) const {
  const int most = std::max(recurrence.dk, recurrence.dv);
  if (recurrence.linear() != nullptr || most <= cpu::kMostState) return {};
  return {Code::kFailedPrecondition, "a head's state has " + std::to_string(recurrence.dk) + " x " +
                                         std::to_string(recurrence.dv) +
                                         " numbers; this backend takes up to " +
                                         std::to_string(cpu::kMostState) + " either way"};
}

namespace {

// The columns of head `head` in `view`, each head being `size` wide, from row `input` on.
cpu::Matrix head_of(View view, int input, int head, int size) {
  if (view.data == nullptr) return {};
  return {view.f32(input) + int64_t{head} * size, view.stride};
}

// The arguments of a rule for one head and one run of inputs.
struct RuleArgs {
  const RecurrenceInputs& inputs;
  int input;  // the first input of the run
  int head, heads;
  cpu::RecurArgs& args;

  cpu::Matrix part(View view, int size) const { return head_of(view, input, head, size); }
  const float* channels(View view) const { return head_of(view, 0, head, args.dk).data; }
  float number(View view) const { return view.f32()[head]; }

  void operator()(const LinearTerms& terms) const {
    args.map = terms.map;
    if (terms.gated) args.gate = part(inputs.gate, 1);
    args.eps = terms.eps;
  }
  void operator()(const Rwkv7Terms& terms) const {
    args.eps = terms.eps;
    args.decay = part(inputs.decay, args.dk);
    args.rate = part(inputs.rate, args.dk);
    args.first = part(inputs.first, args.dv);
    args.mix = part(inputs.mix, args.dv);
    args.k_k = channels(terms.k_k);
    args.k_a = channels(terms.k_a);
    args.r_k = channels(terms.r_k);
    const cpu::Matrix bonus = part(inputs.bonus, args.dv);
    args.bonus = const_cast<float*>(bonus.data);
    args.bonus_stride = bonus.stride;
  }
  void operator()(const Mamba2Terms& terms) const {
    args.decay = part(inputs.decay, 1);
    args.dt_rate = number(terms.dt_rate);
    args.dt_bias = number(terms.dt_bias);
    args.skip = number(terms.skip);
    args.dt_least = terms.dt_least;
    args.dt_most = terms.dt_most;
  }
  void operator()(const Mamba1Terms& terms) const {
    args.decay = part(inputs.decay, args.dv);
    args.gate = part(inputs.gate, args.dv);
    args.rates = terms.dt_rate.f32(head * args.dk);
    args.biases = head_of(terms.dt_bias, 0, head, args.dv).data;
    args.skips = head_of(terms.skip, 0, head, args.dv).data;
  }
  void operator()(const GatedTerms& terms) const {
    args.gated = terms;
    args.q = shared(inputs.q, args.dk, terms.tiled_keys);
    args.k = shared(inputs.k, args.dk, terms.tiled_keys);
    args.v = shared(inputs.v, args.dv);
    args.decay = shared(inputs.decay, terms.decay_of_heads ? 1 : args.dk);
    args.rate = shared(inputs.rate, 1);
    args.decay_rate = channels(terms.decay_rate);
    args.decay_bias = channels(terms.decay_bias);
    args.bonus_of = channels(terms.bonus);
    args.turn = head_of(inputs.turn, input, 0, 0);
  }
  // The head's part of a view, which may have fewer heads: then several heads share a part.
  cpu::Matrix shared(View view, int size, bool is_tiled = false) const {
    if (view.data == nullptr) return {};
    const int fewer = view.cols / size;
    return head_of(view, input, is_tiled ? head % fewer : head / (heads / fewer), size);
  }
};

// The arguments of the recurrence, without the states and the number of inputs.
cpu::RecurArgs recur_args(const Recurrence& recurrence, const RecurrenceInputs& inputs, int input,
                          int head, View out) {
  const int key_head =
      recurrence.key_heads > 0 ? head / (recurrence.heads / recurrence.key_heads) : head;
  cpu::RecurArgs args{};
  args.rule = recurrence.rule();
  args.dk = recurrence.dk;
  args.dv = recurrence.dv;
  args.q = head_of(inputs.q, input, key_head, args.dk);
  args.k = head_of(inputs.k, input, key_head, args.dk);
  args.v = head_of(inputs.v, input, head, args.dv);
  args.out = out.f32(input) + int64_t{head} * args.dv;
  args.out_stride = out.stride;
  std::visit(RuleArgs{inputs, input, head, recurrence.heads, args}, recurrence.terms);
  return args;
}

}  // namespace

void CpuOperations::recur(Rows rows, const Control*, const Recurrence& recurrence,
                          const RecurrenceInputs& inputs, States states, View out) {
  check_recur(recurrence, inputs, out);
  check_inputs(rows, out, "recur: the rows' inputs are out's");
  check(takes(recurrence).ok(), "recur: the backend has said that it does not");
  const int heads = recurrence.heads;
  const int64_t head_floats = recurrence.state_bytes() / 4 / heads;
  const auto state = [&](int item) {
    return state_of(states, std::max(rows.slot[item / heads], 0)) + item % heads * head_floats;
  };
  const auto head = [&](int item, int next) {
    const int row = item / heads;
    if (rows.slot[row] < 0) return;
    cpu::RecurArgs args =
        recur_args(recurrence, inputs, rows.first[row] - rows.first[0], item % heads, out);
    args.inputs = rows.first[row + 1] - rows.first[row];
    args.state = state(item);
    args.next = state(next);
    kernels_.recur(args);
  };
  const int64_t work =
      out.rows * int64_t{heads} * (int64_t{recurrence.dk} * recurrence.dv / 10 + 20);
  sharing_.split(rows.count * heads, work, [&](int begin, int end) {
    for (int item = begin; item < end; ++item) head(item, std::min(item + kHeadsAhead, end - 1));
  });
}

// ---- attention ----------------------------------------------------------------------------------

Status CpuOperations::takes(const Attention& attention) const {
  const int most = std::max(attention.dk, attention.dv);
  if (most <= cpu::kMostHeadSize) return {};
  return {Code::kFailedPrecondition, "a head of attention has " + std::to_string(most) +
                                         " numbers; this backend takes up to " +
                                         std::to_string(cpu::kMostHeadSize)};
}

namespace {

// A row of a batch in attend().
struct AttendingRow {
  int32_t slot;
  int first, inputs;  // the index of the row's first input in the operation, and their number
  int64_t position;   // the position of the first input
};

// Calls body(row, first, last) for each row that has some of the inputs [first, last) of an
// operation, with the range of its inputs.
template <typename F>
void attend_block(Rows rows, int first, int last, const F& body) {
  while (first < last) {
    const auto* const next =
        std::upper_bound(rows.first, rows.first + rows.count, first + rows.first[0]);
    const auto row = static_cast<int>(next - rows.first) - 1;
    const int end = std::min(last, rows.first[row + 1] - rows.first[0]);
    body(row, first, end);
    first = end;
  }
}

// The arguments for one head of keys and values, and for the queries that read it.
cpu::AttendArgs attend_args(const Attention& attention, const AttentionInputs& inputs,
                            const Cache& cache, const AttendingRow& row, int head, View out) {
  const int64_t keys = attention.key_bytes();
  const int64_t values = attention.page_bytes() - keys;
  const int group = attention.heads / attention.kv_heads;
  std::byte* const page = cache.first.base + row.slot * cache.first.slot_bytes + cache.first.offset;
  return {.q = head_of(inputs.q, row.first, head, group * attention.dk),
          .k = head_of(inputs.k, row.first, head, attention.dk),
          .v = head_of(inputs.v, row.first, head, attention.dv),
          .group = group,
          .angles = matrix(attention.angles),
          .rotated = attention.angles.data == nullptr ? 0 : attention.angles.cols,
          .inputs = row.inputs,
          .position = row.position,
          .dk = attention.dk,
          .dv = attention.dv,
          .scale = attention.scale,
          .stored = attention.stored,
          .keys = page + keys / attention.kv_heads * head,
          .values = page + keys + values / attention.kv_heads * head,
          .page_bytes = cache.page_bytes,
          .out = out.f32(row.first) + int64_t{head} * group * attention.dv,
          .out_stride = out.stride};
}

AttendingRow attending_row(Rows rows, int row, const Control* control, const Cache& cache) {
  const int32_t slot = rows.slot[row];
  const int count = rows.first[row + 1] - rows.first[row];
  const int64_t position = slot < 0 ? 0 : control[slot].position;
  check(position >= 0 && position + count <= cache.positions, "attend: positions of the cache");
  return {slot, rows.first[row] - rows.first[0], count, position};
}

}  // namespace

void CpuOperations::attend(Rows rows, const Control* control, const Attention& attention,
                           const AttentionInputs& inputs, const Cache& cache, View out) {
  check_attend(attention, inputs, cache, out);
  check_inputs(rows, out, "attend: the rows' inputs are out's");
  check(takes(attention).ok(), "attend: the backend has said that it does not");
  const auto row_at = [&](int row) { return attending_row(rows, row, control, cache); };
  // If threads share the operation, a thread that comes late finds that the positions have already
  // advanced. So only the tasks read positions, and the estimate of the work does not use them.
  const int64_t read = out.rows * (cache.positions / 4 + 1);
  const int64_t size = attention.dk + attention.dv;
  const int heads = attention.kv_heads;
  sharing_.split(rows.count * heads, out.rows * heads * size, [&](int begin, int end) {
    for (int item = begin; item < end; ++item) {
      const AttendingRow row = row_at(item / heads);
      if (row.slot < 0) continue;
      kernels_.append(attend_args(attention, inputs, cache, row, item % heads, out));
    }
  });
  // Several inputs attend together, so that they read each page only once.
  const int each = out.rows > 4 * kAttendingInputs ? kAttendingInputs : 1;
  const int blocks = divide_up(out.rows, each);
  sharing_.split(blocks * heads, read * attention.heads * size / 20, [&](int begin, int end) {
    for (int item = begin; item < end; ++item) {
      const int first = item / heads * each;
      attend_block(rows, first, std::min(first + each, out.rows), [&](int row, int from, int to) {
        const AttendingRow at = row_at(row);
        if (at.slot < 0) return;
        const cpu::AttendArgs args = attend_args(attention, inputs, cache, at, item % heads, out);
        kernels_.attend(args, (from - at.first) * args.group, (to - at.first) * args.group);
      });
    }
  });
}

namespace {

// The approximate time of one row, in nanoseconds.
int64_t head_work(const Head& kind) {
  return kind.kind == HeadKind::kCategorical ? int64_t{kind.values} * 4
                                             : int64_t{kind.components} * 80;
}

// Notes the given inputs of a row, which does not sample, among its recent values. The first input
// is at `position`.
void note_inputs(const Rows& rows, const Recent& recent, int row, RecentRing ring,
                 int64_t position) {
  if (recent.room == 0 || recent.inputs == nullptr) return;
  for (int input = rows.first[row]; input < rows.first[row + 1]; ++input, ++position) {
    if (recent.inputs[input] != kNoValue) ring.note(position, recent.inputs[input]);
  }
}

}  // namespace

void CpuOperations::sample_row(Rows rows, Outputs outputs, const Head& kind, View head,
                               Control* control, SampledTo to, int row) {
  Sampled& out = to.rows[row];
  out.row = -1;
  const int32_t slot = rows.slot[row];
  if (slot < 0) return;
  Control& held = control[slot];
  const Recent& recent = outputs.recent;
  const RecentRing ring = recent.of(slot);
  const int32_t head_row = outputs.head_row[row];
  if (head_row < 0) note_inputs(rows, recent, row, ring, held.position);
  held.position += rows.first[row + 1] - rows.first[row];
  if (head_row < 0) {
    held.pending = outputs.pending[row];
    ring.note(held.position, held.pending);
    return;
  }
  check(head_row < head.rows, "sample: a row of the head");
  const PhiloxCounter words = philox_words(held.seed, held.position, held.stream, 0);
  cpu::Choice choice = {.sampling = held.sampling,
                        .top_count = held.top_log_probs,
                        .uniforms = {philox_uniform(words.word[0]), philox_uniform(words.word[1])},
                        .biases = recent.biases,
                        .recent = ring,
                        .position = held.position};
  if (recent.penalties != nullptr && recent.penalties[row].any()) {
    choice.penalties = &recent.penalties[row];
  }
  cpu::sample_row(kernels_, kind, head.f32(head_row), choice, scratch_.as<float>(), to.from(row));
  ring.note(held.position, out.value);
  out.row = row;
  out.position = held.position;
  held.pending = out.value;
  if (--held.remaining <= 0) rows.slot[row] = -1;
}

void CpuOperations::sample(Rows rows, Outputs outputs, const Head& kind, View head,
                           Control* control, SampledTo to) {
  check_head(kind, head);
  grow_scratch(cpu::scratch_floats(kind));
  sharing_.split(rows.count, rows.count * (head_work(kind) + 100), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      sample_row(rows, outputs, kind, head, control, to, row);
    }
  });
}

void CpuOperations::score(const Head& kind, View head, View targets, View log_probs) {
  check_score(kind, head, targets, log_probs);
  grow_scratch(cpu::scratch_floats(kind));
  sharing_.split(head.rows, head.rows * head_work(kind), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      const int32_t target = targets.i32()[row];
      check(target >= 0 && target < kind.values, "score: a target is one of the values");
      log_probs.f32()[row] =
          cpu::score_row(kernels_, kind, head.f32(row), target, scratch_.as<float>());
    }
  });
}

}  // namespace runnel
