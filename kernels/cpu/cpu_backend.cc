#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "kernels/blocks.h"
#include "kernels/checks.h"
#include "kernels/cpu/block_panels.h"
#include "kernels/cpu/choose_isa.h"
#include "kernels/cpu/cpu_threads.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/machine.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/phases.h"
#include "kernels/cpu/sampling.h"
#include "kernels/philox.h"
#include "kernels/sinusoids.h"

namespace runnel {
namespace {

using cpu::Kernels;

constexpr int kMaxThreads = 256;

// Matmuls that are shared at once, at most.
constexpr int kMostProducts = 8;

// Panels that a tile of few rows takes at once.
constexpr int kPanelsOfATile = 4;

// The columns of a row that shift() and convolve() take at a time.
constexpr int kBlockColumns = 256;

// Inputs of a prompt that attend together.
constexpr int kAttendingInputs = 8;

// Prefetch distance, in heads.
constexpr int kHeadsAhead = 2;

// Sharing an operation costs a barrier. It pays only above this much work, in nanoseconds: for each
// thread in an operation, and for the whole of it.
constexpr int64_t kWorthAThread = 300;
constexpr int64_t kWorthATeam = 40'000;
// An input that takes this many nanoseconds has more weights than caches hold. Every run reads them
// from memory, so a run has at least this many inputs.
constexpr int64_t kFarWeights = 200'000;
constexpr int kFewestFarInputs = 8;

const Kernels& kernels_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAmx) return cpu::amx_kernels();
  if (isa == Isa::kAvx512Bf16) return cpu::avx512bf16_kernels();
  if (isa == Isa::kAvx512) {
    const bool multiplies_bytes = __builtin_cpu_supports("avx512vnni");
    return multiplies_bytes ? cpu::avx512vnni_kernels() : cpu::avx512_kernels();
  }
  if (isa == Isa::kAvx2) return cpu::avx2_kernels();
#endif
  (void)isa;
  return cpu::portable_kernels();
}

int divide_up(int64_t count, int64_t by) { return static_cast<int>((count + by - 1) / by); }
int64_t padded_to(int multiple, int count) {
  return int64_t{divide_up(count, multiple)} * multiple;
}

// Where part `index` of `parts` nearly equal ones of [0, count) begins.
int part(int count, int index, int parts) {
  return static_cast<int>(int64_t{count} * index / parts);
}

// On top of an operation's own contract: what the rows take is what there is a row of `out` for.
void check_inputs(Rows rows, View out, const char* what) {
  check(rows.count == 0 || rows.inputs() == out.rows, what);
}

std::string shown(std::string_view text) {
  std::string out(text.substr(0, 40));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text.size() > 40 ? out + "..." : out;
}

class CpuBackend;

// The threads of a backend. Each has a lane: the same operations, with scratch memory of its own.
struct Team {
  std::shared_ptr<CpuThreads> threads;
  cpu::Phases phases;
  std::vector<std::unique_ptr<CpuBackend>> lanes;
};

class CpuBackend final : public Backend {
 public:
  // The backend itself.
  CpuBackend(Isa isa, std::shared_ptr<CpuThreads> threads) : CpuBackend(isa) {
    team_ = std::make_unique<Team>();
    team_->threads = std::move(threads);
    for (int i = 0; i < team_->threads->pool.threads(); ++i) {
      team_->lanes.push_back(std::make_unique<CpuBackend>(isa));
    }
  }
  // A lane, or the backend of one thread.
  explicit CpuBackend(Isa isa) : isa_(isa), kernels_(kernels_of(isa)) {}

  DeviceKind device() const override { return DeviceKind::kCpu; }
  std::string numerics(Precision precision) const override;
  Precision preferred() const override {
    return isa_ >= Isa::kAvx512Bf16 ? Precision::kBf16 : Precision::kFp32;
  }
  int64_t free_memory() const override { return cpu::free_memory(); }
  Status takes(const Recurrence& recurrence) const override;
  Status takes(const Attention& attention) const override;
  Buffer allocate(int64_t bytes, Memory memory) override;
  bool takes_bf16_tables() const override { return true; }
  bool takes_blocks(StoredType type) const override { return cpu::has_block_panels(type); }
  Weight pack(HostTensor weight, HostTensor bias, Precision precision) override;
  void run(Rows rows, int64_t work, const Pass& pass) override;
  void embed(Rows rows, View values, const Control* control, const Embedding& embedding,
             View out) override;
  void matmul(View x, const Weight& weight, End end, View out) override;
  void matmuls(std::span<const Product> products) override;
  void norm(View x, View residual, const Norm& norm, View out) override;
  void gated_norm(View x, const Norm& norm, const NormGate& gate, View out) override;
  void shift(Rows rows, View x, View mu, States states, View out) override;
  void convolve(Rows rows, View x, const Convolution& convolution, States states,
                View out) override;
  void features(View x, const RandomFeatures& features, View out) override;
  void recur(Rows rows, const Control* control, const Recurrence& recurrence,
             const RecurrenceInputs& inputs, States states, View out) override;
  void attend(Rows rows, const Control* control, const Attention& attention,
              const AttentionInputs& inputs, const Cache& cache, View out) override;
  void sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
              SampledTo to) override;
  void score(const Head& kind, View head, View targets, View log_probs) override;
  void copy(Span from, Span to) override;
  void zero(Span bytes) override;

 private:
  // Calls body(begin, end) for parts of [0, count) that together cover it, and shares them with the
  // other threads where they take part. `nanoseconds`: about what one thread would need for all of
  // it.
  template <typename F>
  void split(int count, int64_t nanoseconds, const F& body) {
    const int tasks = shared_ == nullptr ? 1 : std::min(count, tasks_for(nanoseconds));
    share(count <= 0 ? 0 : tasks,
          [&](int task) { body(part(count, task, tasks), part(count, task + 1, tasks)); });
  }
  // Calls body(task) for tasks of [0, tasks), together with the other threads where they take part.
  template <typename F>
  void share(int tasks, const F& body) {
    if (tasks <= 0) return;
    if (shared_ != nullptr) {
      shared_->run(phase_++, tasks, body);
      return;
    }
    for (int task = 0; task < tasks; ++task) body(task);
  }
  // Whether threads take blocks of a matmul's rows; otherwise they take its panels.
  bool is_shared_by_rows(int rows) const {
    return divide_up(rows, kernels_.block_rows) >= 2 * threads_;
  }
  int tasks_for(int64_t nanoseconds) const {
    const int64_t threads = std::clamp<int64_t>(nanoseconds / kWorthAThread, 1, threads_);
    return static_cast<int>(std::max(threads, nanoseconds / kernels_.longest_task));
  }
  void run_together(Rows rows, const Pass& pass);
  void run_in_parts(Rows rows, int parts, const Pass& pass);
  void multiply(View x, const Weight& weight, const End& end, View out, int first, int last);
  void round(View x, Precision precision);
  template <typename F>
  void split_columns(Rows rows, int columns, int64_t each, const F& body);
  void sample_row(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
                  SampledTo to, int row);
  void grow_scratch(int64_t floats);

  const Isa isa_;
  const Kernels& kernels_;
  // Of the backend; a lane has none.
  cpu::Arena weights_;
  std::unique_ptr<Team> team_;
  bool backwards_ = false;  // the order of runs

  cpu::Phases* shared_ = nullptr;  // set: the threads share each operation
  uint32_t phase_ = 0;             // that comes next
  int threads_ = 1;                // that share
  struct Rounded {
    const void* x = nullptr;
    int64_t stride = 0;
    int rows = 0, columns = 0;
    Precision precision = Precision::kFp32;
    uint32_t phase = 0;
    bool operator==(const Rounded&) const = default;
  };
  Rounded rounded_;  // what scratch_ has, where threads share
  Buffer scratch_;   // for categorical heads and rounded inputs
};

std::string CpuBackend::numerics(Precision precision) const {
  if (precision == Precision::kSplit) return "";
  // The instructions for bf16 change nothing about fp32, and tiles add up as vectors do.
  const bool own = precision == Precision::kBf16 && kernels_.step != cpu::kStepInputs;
  const Isa isa = own ? isa_ : std::min(isa_, Isa::kAvx512);
  return std::string("cpu/") + isa_name(isa) +
         (precision == Precision::kFp32     ? "/fp32/step"
          : precision == Precision::kBlocks ? "/blocks/block32"
          : precision == Precision::kInt8   ? "/int8/step32"
          : own                             ? "/bf16/step"
                                            : "/bf16/step32");
}

// ---- threads ------------------------------------------------------------------------------------

// How many runs of rows to make of a batch; 1: it is better shared operation by operation.
int runs_of(Rows rows, const Kernels& kernels, int threads, int64_t nanoseconds) {
  const int most = kernels.run_inputs;
  const int inputs = rows.inputs();
  int longest = 0;
  for (int row = 0; row < rows.count; ++row) {
    longest = std::max(longest, rows.first[row + 1] - rows.first[row]);
  }
  if (longest > most) return 1;
  const int64_t each = nanoseconds / std::max(inputs, 1);
  const int fewest = each < kWorthATeam / 8 ? 1
                     : each < kFarWeights   ? kernels.fewest_run_inputs
                                            : std::max(kernels.fewest_run_inputs, kFewestFarInputs);
  if (inputs < threads * fewest) return 1;
  // A multiple of the threads, so that all are busy until the end.
  const int rounds = divide_up(inputs, int64_t{threads} * most);
  return threads * rounds;
}

void CpuBackend::run(Rows rows, int64_t work, const Pass& pass) {
  check(team_ != nullptr, "run: not from within a pass");
  if (rows.count == 0) return;
  const int threads = team_->threads->pool.threads();
  // 50 multiply-adds a nanosecond, half of that for a single input.
  const int64_t nanoseconds = (rows.inputs() + 1) * work / 50;
  const int runs = std::min(runs_of(rows, kernels_, threads, nanoseconds), rows.count);
  const bool together = runs <= 1 && threads > 1 && nanoseconds >= kWorthATeam;
  const cpu::Places::Hold hold(team_->threads->places, runs > 1 || together ? threads : 1);
  if (runs > 1) {
    run_in_parts(rows, runs, pass);
  } else if (together) {
    run_together(rows, pass);
  } else {
    pass(*this, 0, rows.count);
  }
}

void CpuBackend::run_together(Rows rows, const Pass& pass) {
  team_->phases.restart();
  const int threads = team_->threads->pool.threads();
  std::atomic<bool> over = false;
  team_->threads->pool.for_each(threads, [&](int, int thread) {
    if (over.load(std::memory_order_relaxed)) return;  // in the place of a thread that never came
    CpuBackend& lane = *team_->lanes[thread];
    lane.shared_ = &team_->phases;
    lane.phase_ = 0;
    lane.rounded_ = {};
    lane.threads_ = threads;
    pass(lane, 0, rows.count);
    lane.shared_ = nullptr;
    over.store(true, std::memory_order_relaxed);
  });
}

// Run `index` of `runs` begins with the first row at or behind its share of the inputs. Batches
// begin at alternate ends: the states that the one before has come to last are still in a cache.
void CpuBackend::run_in_parts(Rows rows, int runs, const Pass& pass) {
  const auto begin_of = [&](int index) {
    const int32_t input = rows.first[0] + part(rows.inputs(), index, runs);
    return static_cast<int>(std::lower_bound(rows.first, rows.first + rows.count, input) -
                            rows.first);
  };
  backwards_ = !backwards_;
  team_->threads->pool.for_each(runs, [&](int task, int thread) {
    const int index = backwards_ ? runs - 1 - task : task;
    const int begin = begin_of(index);
    const int end = index + 1 == runs ? rows.count : begin_of(index + 1);
    if (begin < end) pass(*team_->lanes[thread], begin, end);
  });
}

// ---- memory -------------------------------------------------------------------------------------

Buffer CpuBackend::allocate(int64_t bytes, Memory) {
  check(bytes >= 0, "a buffer's size is not negative");
  return cpu::zeroed_memory(bytes);
}

Weight CpuBackend::pack(HostTensor weight, HostTensor bias, Precision precision) {
  check_pack(weight, bias);
  check(!numerics(precision).empty(), "pack: in a precision that numerics() has an id for");
  check(precision == Precision::kBlocks || !is_blocks(weight.stored), "pack: blocks for kBlocks");
  const int64_t panel = kernels_.panel;
  if (!is_blocks(weight.stored) && precision == Precision::kBlocks) precision = Precision::kFp32;
  Weight packed = cpu::pack_panels(weight, precision, kernels_, *team_->threads, weights_);
  packed.bias = weights_.place(divide_up(weight.rows, panel) * panel * 4);
  if (bias.data != nullptr) {
    std::memcpy(packed.bias.data(), bias.data, static_cast<size_t>(weight.rows) * 4);
  }
  // Rounded inputs, followed by a panel in bf16.
  const int64_t rounded = padded_to(cpu::kStepInputs, weight.cols) *
                          (kernels_.block_rows + (precision == Precision::kInt8 ? panel / 2 : 0));
  const int64_t scratch =
      std::max(precision == Precision::kFp32 ? 0 : rounded, int64_t{2} * weight.rows);
  grow_scratch(scratch);
  for (const auto& lane : team_->lanes) lane->grow_scratch(scratch);
  return packed;
}

void CpuBackend::copy(Span from, Span to) {
  check_copy(from, to);
  if (from.bytes > 0) std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes));
}

void CpuBackend::zero(Span bytes) {
  check_zero(bytes);
  if (bytes.bytes > 0) std::memset(bytes.data, 0, static_cast<size_t>(bytes.bytes));
}

// ---- embed --------------------------------------------------------------------------------------

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

void CpuBackend::embed(Rows rows, View values, const Control* control, const Embedding& embedding,
                       View out) {
  check_embed(rows, values, embedding, out);
  check_inputs(rows, out, "embed: the rows' inputs are out's");
  const int64_t each = embedding.position == PositionKind::kSinusoidal
                           ? embedding.position_width * 13
                       : is_blocks(embedding.blocks) ? embedding.values.cols * 3 / 2
                                                     : embedding.values.cols / 8;
  split(rows.count, out.rows * (each + 20), [&](int begin, int end) {
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

cpu::Matrix matrix(View view) { return {view.f32(), view.stride}; }

// Rows [first, first + count) of an optional matrix.
View rows_of(View view, int first, int count) {
  return view.data == nullptr ? view : view.slice(first, count);
}

// 50 multiply-adds a nanosecond, half of that for a single row.
int64_t matmul_work(View x, const Weight& weight) {
  return int64_t{x.rows + 1} * weight.in * weight.out / 50;
}

// The panels of a matmul, in tasks.
struct PanelTasks {
  int panels, unit, units, count;

  // Task `index` has the panels [begin(index), begin(index + 1)).
  int begin(int index) const { return std::min(part(units, index, count) * unit, panels); }
};

// About `wanted` tasks of whole tiles, where there are enough panels.
PanelTasks panel_tasks(int panels, int64_t wanted) {
  const int count = static_cast<int>(std::clamp<int64_t>(wanted, 1, panels));
  const int unit = std::bit_floor(static_cast<unsigned>(std::min(panels / count, kPanelsOfATile)));
  const int units = divide_up(panels, unit);
  return {panels, unit, units, std::min(count, units)};
}

void CpuBackend::matmul(View x, const Weight& weight, End end, View out) {
  check_matmul(x, weight, end, out);
  const int panels = divide_up(weight.out, kernels_.panel);
  const int64_t work = matmul_work(x, weight);
  if (!is_shared_by_rows(x.rows)) {
    const PanelTasks tasks = panel_tasks(panels, shared_ == nullptr ? 1 : tasks_for(work));
    share(x.rows == 0 ? 0 : tasks.count, [&](int task) {
      multiply(x, weight, end, out, tasks.begin(task), tasks.begin(task + 1));
    });
    return;
  }
  const int rows = kernels_.block_rows;
  split(divide_up(x.rows, rows), work, [&](int begin_block, int end_block) {
    const int begin = begin_block * rows;
    const int count = std::min(end_block * rows, x.rows) - begin;
    const End part = {end.activation, rows_of(end.times, begin, count),
                      rows_of(end.plus, begin, count)};
    multiply(x.slice(begin, count), weight, part, out.slice(begin, count), 0, panels);
  });
}

void CpuBackend::matmuls(std::span<const Product> products) {
  if (shared_ == nullptr || products.empty() || is_shared_by_rows(products[0].x.rows)) {
    Backend::matmuls(products);
    return;
  }
  check(products.size() <= kMostProducts, "matmuls: no more than the backend can share at once");
  int64_t work = 1;
  for (const Product& one : products) {
    check_matmul(one.x, *one.weight, one.end, one.out);
    work += matmul_work(one.x, *one.weight);
  }
  std::array<PanelTasks, kMostProducts> shares;
  int tasks = 0;
  for (size_t i = 0; i < products.size() && products[i].x.rows > 0; ++i) {
    const Weight& weight = *products[i].weight;
    const int64_t wanted = tasks_for(work) * matmul_work(products[i].x, weight) / work;
    shares[i] = panel_tasks(divide_up(weight.out, kernels_.panel), wanted + 1);
    tasks += shares[i].count;
  }
  share(tasks, [&](int task) {
    size_t i = 0;
    for (; task >= shares[i].count; ++i) task -= shares[i].count;
    const Product& one = products[i];
    multiply(one.x, *one.weight, one.end, one.out, shares[i].begin(task),
             shares[i].begin(task + 1));
  });
}

// Rounds x into scratch memory. The tasks of a product that threads share have the same x, which
// each of them rounds once.
void CpuBackend::round(View x, Precision precision) {
  const Rounded what = {x.data, x.stride, x.rows, x.cols, precision, phase_};
  if (shared_ != nullptr && what == rounded_) return;
  rounded_ = what;
  const auto rows = precision == Precision::kBlocks ? kernels_.round_blocks
                    : precision == Precision::kInt8 ? kernels_.round_int8
                                                    : kernels_.round_rows;
  rows(x.f32(), x.stride, x.rows, x.cols, scratch_.as<float>());
}

// Panels [first, last) of a matmul.
void CpuBackend::multiply(View x, const Weight& weight, const End& end, View out, int first,
                          int last) {
  cpu::MatmulArgs args = {.x = x.f32(),
                          .x_stride = x.stride,
                          .panels = weight.panels.as<float>(),
                          .bias = weight.bias.as<float>(),
                          .scales = weight.scales.as<float>(),
                          .room = nullptr,
                          .blocks = weight.blocks,
                          .in = weight.in,
                          .out = weight.out,
                          .activation = end.activation,
                          .times = matrix(end.times),
                          .plus = matrix(end.plus),
                          .y = out.f32(),
                          .y_stride = out.stride};
  if (weight.precision == Precision::kFp32) {
    const bool widens = weight.stored == DType::kBF16;
    (widens ? kernels_.matmul_widened : kernels_.matmul)(args, x.rows, first, last);
    return;
  }
  const auto product = weight.precision == Precision::kBlocks ? kernels_.matmul_blocks
                       : weight.precision == Precision::kInt8 ? kernels_.matmul_int8
                                                              : kernels_.matmul_rounded;
  args.x = scratch_.as<float>();
  args.x_stride = divide_up(weight.in, 2);
  args.room = scratch_.as<float>() + kernels_.block_rows * padded_to(cpu::kStepInputs, weight.in);
  for (int row = 0; row < x.rows; row += kernels_.block_rows) {
    const int rows = std::min(kernels_.block_rows, x.rows - row);
    round(x.slice(row, rows), weight.precision);
    args.y = out.f32(row);
    args.times = matrix(rows_of(end.times, row, rows));
    args.plus = matrix(rows_of(end.plus, row, rows));
    product(args, rows, first, last);
  }
}

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

void CpuBackend::norm(View x, View residual, const Norm& norm, View out) {
  check_norm(x, residual, norm, out);
  cpu::NormArgs args = norm_args(x, norm, out);
  args.residual = matrix(residual);
  split(x.rows, int64_t{x.rows} * (x.cols / 4 + 30),
        [&](int begin, int end) { kernels_.norm(args, begin, end); });
}

void CpuBackend::gated_norm(View x, const Norm& norm, const NormGate& gate, View out) {
  check_gated_norm(x, norm, gate, out);
  cpu::NormArgs args = norm_args(x, norm, out);
  args.gate = matrix(gate.by);
  args.plus = matrix(gate.plus);
  args.gate_with = gate.activation;
  args.gate_before = gate.before;
  split(x.rows, int64_t{x.rows} * (x.cols + 30),
        [&](int begin, int end) { kernels_.norm(args, begin, end); });
}

// Calls body(row, state's slot, first column, last) for rows that are not frozen and blocks of
// columns; `each`: nanoseconds of all inputs and columns.
template <typename F>
void CpuBackend::split_columns(Rows rows, int columns, int64_t each, const F& body) {
  const int blocks = divide_up(columns, kBlockColumns);
  split(rows.count * blocks, each, [&](int begin, int end) {
    for (int item = begin; item < end; ++item) {
      const int row = item / blocks;
      const int column = item % blocks * kBlockColumns;
      if (rows.slot[row] < 0) continue;
      body(row, column, std::min(column + kBlockColumns, columns));
    }
  });
}

float* state_of(States states, int32_t slot) {
  return reinterpret_cast<float*>(states.base + slot * states.slot_bytes + states.offset);
}

void CpuBackend::shift(Rows rows, View x, View mu, States states, View out) {
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

void CpuBackend::convolve(Rows rows, View x, const Convolution& convolution, States states,
                          View out) {
  check_convolve(x, convolution, out);
  check_inputs(rows, out, "convolve: the rows' inputs are out's");
  const int64_t each = int64_t{out.rows} * out.cols;
  split_columns(rows, x.cols, each, [&](int row, int begin, int end) {
    const int input = rows.first[row] - rows.first[0];
    kernels_.convolve({.x = {x.f32(input), x.stride},
                       .weight = matrix(convolution.weight),
                       .bias = convolution.bias.f32(),
                       .activation = convolution.activation,
                       .taps = convolution.taps(),
                       .channels = x.cols,
                       .inputs = rows.first[row + 1] - rows.first[row],
                       .state = state_of(states, rows.slot[row]),
                       .out = out.f32(input),
                       .out_stride = out.stride},
                      begin, end);
  });
}

void CpuBackend::features(View x, const RandomFeatures& features, View out) {
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
  split(count, count * each, [&](int begin, int end) { kernels_.features(args, begin, end); });
}

Status CpuBackend::takes(const Recurrence& recurrence) const {
  const int most = std::max(recurrence.dk, recurrence.dv);
  if (recurrence.linear() != nullptr || most <= cpu::kMostState) return {};
  return {Code::kFailedPrecondition, "a head's state has " + std::to_string(recurrence.dk) + " x " +
                                         std::to_string(recurrence.dv) +
                                         " numbers; this backend takes up to " +
                                         std::to_string(cpu::kMostState) + " either way"};
}

// The part of `view` that is head `head`'s, `size` columns wide, from row `input` on.
cpu::Matrix head_of(View view, int input, int head, int size) {
  if (view.data == nullptr) return {};
  return {view.f32(input) + int64_t{head} * size, view.stride};
}

// What one head of one run of inputs takes of its rule.
struct RuleArgs {
  const RecurrenceInputs& inputs;
  int input;  // the first one
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
    args.q = shared(inputs.q, args.dk);
    args.k = shared(inputs.k, args.dk);
    args.v = shared(inputs.v, args.dv);
    args.decay = shared(inputs.decay, terms.decay_of_heads ? 1 : args.dk);
    args.rate = shared(inputs.rate, 1);
    args.decay_rate = channels(terms.decay_rate);
    args.decay_bias = channels(terms.decay_bias);
    args.bonus_of = channels(terms.bonus);
    args.turn = head_of(inputs.turn, input, 0, 0);
  }
  // The part of the head's group, where the view has fewer heads.
  cpu::Matrix shared(View view, int size) const {
    if (view.data == nullptr) return {};
    return head_of(view, input, head / (heads / (view.cols / size)), size);
  }
};

// Without states and the number of inputs.
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

void CpuBackend::recur(Rows rows, const Control*, const Recurrence& recurrence,
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
  split(rows.count * heads, work, [&](int begin, int end) {
    for (int item = begin; item < end; ++item) head(item, std::min(item + kHeadsAhead, end - 1));
  });
}

// ---- attention ----------------------------------------------------------------------------------

Status CpuBackend::takes(const Attention& attention) const {
  const int most = std::max(attention.dk, attention.dv);
  if (most <= cpu::kMostHeadSize) return {};
  return {Code::kFailedPrecondition, "a head of attention has " + std::to_string(most) +
                                         " numbers; this backend takes up to " +
                                         std::to_string(cpu::kMostHeadSize)};
}

// A row of a batch that attends.
struct AttendingRow {
  int32_t slot;
  int first, inputs;  // of the operation's
  int64_t position;   // of the first input
};

// Calls body(row, first, last) for the rows that inputs [first, last) of an operation are of.
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

// Of head `head` of keys and values.
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

void CpuBackend::attend(Rows rows, const Control* control, const Attention& attention,
                        const AttentionInputs& inputs, const Cache& cache, View out) {
  check_attend(attention, inputs, cache, out);
  check_inputs(rows, out, "attend: the rows' inputs are out's");
  check(takes(attention).ok(), "attend: the backend has said that it does not");
  const auto row_at = [&](int row) { return attending_row(rows, row, control, cache); };
  // Where threads share the operation, one that comes late finds positions advanced already: they
  // are read in tasks alone, and the work is judged without them.
  const int64_t read = out.rows * (cache.positions / 4 + 1);
  const int64_t size = attention.dk + attention.dv;
  const int heads = attention.kv_heads;
  split(rows.count * heads, out.rows * heads * size, [&](int begin, int end) {
    for (int item = begin; item < end; ++item) {
      const AttendingRow row = row_at(item / heads);
      if (row.slot < 0) continue;
      kernels_.append(attend_args(attention, inputs, cache, row, item % heads, out));
    }
  });
  // Several inputs share what they read of a page.
  const int each = out.rows > 4 * kAttendingInputs ? kAttendingInputs : 1;
  const int blocks = divide_up(out.rows, each);
  split(blocks * heads, read * attention.heads * size / 20, [&](int begin, int end) {
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

// ---- head ---------------------------------------------------------------------------------------

void CpuBackend::grow_scratch(int64_t floats) {
  if (scratch_.bytes() < floats * 4) scratch_ = allocate(floats * 4, Memory::kDevice);
}

// About what one row takes, in nanoseconds.
int64_t head_work(const Head& kind) {
  return kind.kind == HeadKind::kCategorical ? int64_t{kind.values} * 4
                                             : int64_t{kind.components} * 80;
}

// Notes the inputs that were given, of which the first is at `position`.
void note_inputs(const Rows& rows, const Recent& recent, int row, RecentRing ring,
                 int64_t position) {
  if (recent.room == 0) return;
  for (int input = rows.first[row]; input < rows.first[row + 1]; ++input, ++position) {
    if (recent.inputs[input] != kNoValue) ring.note(position, recent.inputs[input]);
  }
}

void CpuBackend::sample_row(Rows rows, Outputs outputs, const Head& kind, View head,
                            Control* control, SampledTo to, int row) {
  Sampled& out = to.rows[row];
  out.row = -1;
  const int32_t slot = rows.slot[row];
  if (slot < 0) return;
  Control& held = control[slot];
  const Recent& recent = outputs.recent;
  const RecentRing ring = recent.of(slot);
  note_inputs(rows, recent, row, ring, held.position);
  held.position += rows.first[row + 1] - rows.first[row];
  const int32_t head_row = outputs.head_row[row];
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
                        .recent = ring,
                        .position = held.position};
  if (recent.penalized != nullptr && recent.penalized[slot].penalties != nullptr) {
    choice.penalized = &recent.penalized[slot];
  }
  cpu::sample_row(kernels_, kind, head.f32(head_row), choice, scratch_.as<float>(), to.from(row));
  ring.note(held.position, out.value);
  out.row = row;
  out.position = held.position;
  held.pending = out.value;
  if (--held.remaining <= 0) rows.slot[row] = -1;
}

void CpuBackend::sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
                        SampledTo to) {
  check_head(kind, head);
  grow_scratch(cpu::scratch_floats(kind));
  split(rows.count, rows.count * (head_work(kind) + 100), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      sample_row(rows, outputs, kind, head, control, to, row);
    }
  });
}

void CpuBackend::score(const Head& kind, View head, View targets, View log_probs) {
  check_score(kind, head, targets, log_probs);
  grow_scratch(cpu::scratch_floats(kind));
  split(head.rows, head.rows * head_work(kind), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      const int32_t target = targets.i32()[row];
      check(target >= 0 && target < kind.values, "score: a target is one of the values");
      log_probs.f32()[row] =
          cpu::score_row(kernels_, kind, head.f32(row), target, scratch_.as<float>());
    }
  });
}

}  // namespace

// ---- choosing -----------------------------------------------------------------------------------

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

Result<Isa> parse_isa(std::string_view name) {
  for (const Isa isa : kIsas) {
    if (name == isa_name(isa)) return isa;
  }
  return invalid_argument("isa is '" + shown(name) +
                          "'; it must be portable, avx2, avx512, avx512bf16 or amx");
}

bool isa_available(Isa isa) {
  if (isa == Isa::kPortable) return true;
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  }
  const bool has_dots =
      __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
  if (isa >= Isa::kAvx512Bf16 && !has_dots) return false;
  if (isa == Isa::kAmx && !cpu::may_use_tiles()) return false;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

Result<std::shared_ptr<CpuThreads>> make_cpu_threads(int threads) {
  if (threads < 0 || threads > kMaxThreads) {
    return invalid_argument("threads is " + std::to_string(threads) +
                            "; it must be between 0 (one per core) and " +
                            std::to_string(kMaxThreads));
  }
  if (threads == 0) threads = std::min(cpu::usable_cores(), kMaxThreads);
  try {
    return std::make_shared<CpuThreads>(threads);
  } catch (const std::system_error& error) {
    return Status(Code::kResourceExhausted, "cannot start " + std::to_string(threads) +
                                                " threads (" + error.what() +
                                                "); ask for fewer threads");
  }
}

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options) {
  const Isa isa = options.isa.value_or(cpu::best_isa().isa);
  if (!isa_available(isa)) {
    return Status(Code::kFailedPrecondition,
                  std::string("this machine does not have the instruction set ") + isa_name(isa) +
                      "; leave isa out for the best one present, or ask for portable");
  }
  std::shared_ptr<CpuThreads> threads = options.shared;
  if (threads == nullptr) {
    auto own = make_cpu_threads(options.threads);
    if (!own.ok()) return own.status();
    threads = std::move(*own);
  }
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(isa, std::move(threads)));
}

}  // namespace runnel
