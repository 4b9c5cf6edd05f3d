// The operations of one device. The forward pass (models/) is written once on top of them.
//
// Sums: each output element is computed by the same operations in the same order, regardless of the
// number of rows and of the place of its row. So the bits of a generation do not depend on the
// other generations in the batch. The exception is a backend with batch_changes_bits().
//
// Shapes are programming contracts (checks.h): a mismatch stops the process. After loading, a
// GPU's operations only enqueue work; the CPU's run at once. One thread calls a backend, except
// inside run().
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "kernels/control.h"
#include "kernels/device.h"
#include "kernels/feature_map.h"
#include "kernels/penalties.h"
#include "kernels/state_part.h"
#include "kernels/view.h"

namespace runnel {

// The kind of device on which a backend computes.
enum class DeviceKind : uint8_t { kCpu, kCuda };

// The name of a device in the API and in numerics ids.
constexpr const char* device_name(DeviceKind kind) {
  return kind == DeviceKind::kCpu ? "cpu" : "cuda";
}

// The number format to which a matrix product rounds its weights and inputs. Sums and all other
// arithmetic are fp32.
// - kInt8: a weight is an integer from -127 to 127 times the scale of its output. Inputs are bf16.
// - kSplit: each number is the sum of two bf16 numbers. A product adds three of the four partial
//   products, which is accurate to 3 * 2^-16. Only precise() returns it.
// - kBlocks: weights keep the blocks of their file. Inputs are quantized to integers in groups of
//   32 (docs/decisions/blocks.md). Weights without blocks are fp32.
enum class Precision : uint8_t { kFp32, kBf16, kInt8, kSplit, kBlocks };

// A packed linear layer, y = x W^T + b, in the backend's own layout.
struct Weight {
  Buffer panels;
  Buffer bias;    // fp32, padded with zeros like the panels; all zeros if the layer has no bias
  Buffer scales;  // only with kInt8: fp32, padded like the bias
  int in = 0;
  int out = 0;
  Precision precision = Precision::kFp32;  // of the product
  // The type of the numbers in panels. With kFp32 they may be bf16, which takes half the memory.
  // The product then converts each weight to fp32. That is exact, so fp32 panels give the same
  // bits.
  DType stored = DType::kF32;
  StoredType blocks = StoredType::kF32;  // only with kBlocks: the type of the file's blocks
};

// The sequences of a batch, or a run of them. Row r owns slot[r] and the inputs
// [first[r], first[r + 1]) of the step. In a matrix with a row for each input, row 0 belongs
// to input first[0].
struct Rows {
  int32_t* slot;         // [count]; -1: frozen or padding, so the row's results are discarded
  const int32_t* first;  // [count + 1], ascending
  int count;

  int inputs() const { return first[count] - first[0]; }
  // Rows [begin, end).
  Rows slice(int begin, int end) const { return {slot + begin, first + begin, end - begin}; }
};

// The addresses of one layer's part of the states: base + slot * slot_bytes + offset.
struct States {
  std::byte* base;
  int64_t slot_bytes;
  int64_t offset;  // bytes from the start of a slot
};

enum class Combine : uint8_t { kConcat, kAdd };
enum class PositionKind : uint8_t { kNone, kTable, kSinusoidal };

// Input layer: concatenates or adds the vector of a value and the vector of its position.
// kSinusoidal computes column c of position p as sin (c even) or cos (c odd) of
// p * 10000^(-2 floor(c / 2) / position_width), in double, rounded once.
struct Embedding {
  View values;     // fp32, or bf16 if takes_bf16_tables(): [vocabulary, value_width]
  View positions;  // only with kTable: of the same types, [length, position_width]
  PositionKind position = PositionKind::kNone;
  Combine combine = Combine::kConcat;
  int position_width = 0;  // kAdd: equal to the value width; kNone: 0
  float scale = 1.0F;      // factor of a value's vector
  // If this is a type of blocks, `values` points to such blocks, row after row, and the type and
  // the stride of the view have no meaning.
  StoredType blocks = StoredType::kF32;
};

// The epilogue of a matrix product: out = activation(x W^T + b) * times + plus, element by element.
// `times` and `plus` are fp32, have the shape of out, and may be out itself. If data is null they
// are left out. With a stride of 0 they have one row, which is used for all rows of out.
struct End {
  Activation activation;
  View times, plus;

  // Implicit: most products end with an activation alone.
  End(Activation activation = Activation::kNone, View times = {}, View plus = {})
      : activation(activation), times(times), plus(plus) {}
};

// A matrix product: out = end(x W^T + b). x [n, in], out [n, out].
struct Product {
  View x;
  const Weight* weight = nullptr;
  End end;
  View out;
  // A gated linear layer has two weights of one shape: out = activation(x W^T + b) * (x U^T + c),
  // with U and c of `up`. Its end has an activation alone. Null: no second weight.
  const Weight* up = nullptr;
};

enum class NormKind : uint8_t {
  kLayer,  // (x - mean) / sqrt(mean((x - mean)^2) + eps) * scale + shift
  kRms,    // x / sqrt(mean(x^2) + eps) * scale
  kNone,   // x, without scale or shift: a gate alone
};

// Normalizes each row of a matrix. With `groups` above 1, a row is divided into this many equal
// slices, such as heads, and each slice is normalized on its own.
struct Norm {
  View scale, shift;  // fp32 [1, width]; kRms has no shift
  float eps;
  NormKind kind = NormKind::kLayer;
  int groups = 1;
};

// The gate of a norm: (norm(x) + plus) * activation(by), or norm(x * activation(by)).
struct NormGate {
  View by;  // fp32, of x's shape
  Activation activation = Activation::kSilu;
  bool before = false;  // true: norm(x * activation(by)), without `plus`
  View plus = {};       // fp32, of x's shape; data null: left out
};

// A causal depthwise convolution and its activation. For each channel:
//   y_t = activation(bias + weight_0 x_(t - taps + 1) + ... + weight_(taps - 1) x_t).
struct Convolution {
  View weight;  // fp32 [taps, channels]: the last row is multiplied by the newest input
  View bias;    // fp32 [1, channels]; data null: left out
  Activation activation = Activation::kSilu;

  int taps() const { return weight.rows; }
  // Bytes of a slot's state: its last inputs, fp32 [taps - 1][channels], oldest first.
  int64_t state_bytes() const { return int64_t{weight.rows - 1} * weight.cols * 4; }
};

// out = the convolution of x [inputs, channels] along each row's inputs. A slot's state keeps the
// last inputs. out may be x.
struct Convolved {
  View x;
  const Convolution* convolution = nullptr;
  States states;
  View out;
};

// All recurrences have one form. For each head there is a state S [dk][dv], which starts as zeros.
// For each input, with the old S on the right:
//   S = diag(w) S + b (a^T S) + k v^T,  y = S^T q.
// A rule defines which of these terms exist and how they are computed from a network's activations
// (rules.h). Below, "x for v" means that the rule uses x in place of v.
enum class Rule : uint8_t {
  // Linear attention (Katharopoulos et al. 2020, equations 18-20):
  //   S += phi(k) v^T, z += phi(k), y = phi(q)^T S / (phi(q)^T z + eps).
  // With a gate (random feature attention, Peng et al. 2021) it forgets: for g = sigmoid(gate),
  //   S = g S + (1 - g) phi(k) v^T, z = g z + (1 - g) phi(k).
  kLinear,
  // RWKV-7 (Peng et al. 2025), where q is r. With alpha = sigmoid(rate), kappa = k k_k:
  //   w = exp(-e^(-1/2) sigmoid(decay)), a = -kappa / |kappa|, b = alpha kappa / |kappa|,
  //   k (1 + (alpha - 1) k_a) for k, and, if there is a mix, v + (first - v) sigmoid(mix) for v.
  // |kappa| is replaced by max(|kappa|, 1e-12), or by sqrt(|kappa|^2 + eps) if eps > 0. The rule
  // also returns bonus = (sum of q k r_k) v, with the k and v that are added to the state.
  kRwkv7,
  // Mamba-2 (Dao and Gu 2024). With dt = softplus(decay + dt_bias), clamped to
  // [dt_least, dt_most]:
  //   w = exp(-dt_rate dt), dt v for v, y + skip v for y.
  // q is C, k is B, both of the head's group, and v is x.
  kMamba2,
  // Mamba-1 (Gu and Dao 2023), where w differs for every element of S. Channels are the columns of
  // all heads. With dt = softplus(decay + dt_bias), one number for each column:
  //   w = exp(-dt_rate dt), dt v for v, (y + skip v) silu(gate) for y.
  // q is C and k is B, which all heads share, and v is x.
  kMamba1,
  // The gated linear family: GLA, RetNet, HGRN2, RWKV-5 and 6, DeltaNet, Gated DeltaNet, KDA.
  // Queries are scale * rotated(normalized(map(x))), keys the same without the scale. DecayKind
  // says how w is computed. With the delta rule and beta = delta sigmoid(rate), or beta = delta
  // without a rate:
  //   a = w k, b = -beta k, and beta v for v.
  // With a bonus, y is read before the update: y = S^T q + (sum of q bonus k) v.
  kGated,
};

// How kGated computes w from the activation `decay`, called x here, and from constants. There is a
// w for each channel of the keys. If x has one number for each head, all channels of the head use
// it.
enum class DecayKind : uint8_t {
  kConstant,     // decay_rate, or 1 if there is no decay_rate
  kLogSigmoid,   // exp(max(log(sigmoid(x)) / 16, decay_least))
  kSigmoid,      // decay_rate + (1 - decay_rate) sigmoid(x); k is 1 - w
  kSoftplus,     // exp(-decay_rate softplus(x + decay_bias))
  kExponential,  // exp(-exp(x))
};

// How kGated normalizes each head of the queries and keys.
enum class KeyNorm : uint8_t {
  kNone,
  kL2,   // x / sqrt(sum of x^2 + 1e-6)
  kSum,  // x / sum of x
};

// The constants that a rule reads in addition to its inputs: one struct for each Rule.
struct LinearTerms {
  static constexpr Rule kRule = Rule::kLinear;
  FeatureMap map = FeatureMap::kElu;  // not a random one, because features() computes random maps
  bool gated = false;
  float eps = 1e-6F;
};

struct Rwkv7Terms {
  static constexpr Rule kRule = Rule::kRwkv7;
  float eps = 0.0F;
  View k_k = {}, k_a = {}, r_k = {};  // fp32 [1, heads * dk]
};

struct Mamba2Terms {
  static constexpr Rule kRule = Rule::kMamba2;
  View dt_rate = {}, dt_bias = {}, skip = {};  // fp32 [1, heads]: exp(A_log), the bias of dt, D
  float dt_least = 0.0F;
  float dt_most = std::numeric_limits<float>::infinity();
};

struct Mamba1Terms {
  static constexpr Rule kRule = Rule::kMamba1;
  View dt_rate = {};             // fp32 [heads * dk, dv]: exp(A_log), in the layout of S
  View dt_bias = {}, skip = {};  // fp32 [1, heads * dv]: the bias of dt, D
};

struct GatedTerms {
  static constexpr Rule kRule = Rule::kGated;
  DecayKind decay = DecayKind::kConstant;
  KeyNorm norm = KeyNorm::kNone;
  Activation map = Activation::kNone;  // of q and k
  bool decay_of_heads = false;         // x has a number for each head, not for each channel
  bool tiled_keys = false;             // if q and k have n heads, head h uses head h % n
  float scale = 1.0F;
  float delta = 0.0F;  // 0: no delta rule
  float decay_least = -std::numeric_limits<float>::max();
  View decay_rate = {}, decay_bias = {}, bonus = {};  // fp32 [1, heads * dk]; data null: none
};

using RuleTerms = std::variant<LinearTerms, Rwkv7Terms, Mamba2Terms, Mamba1Terms, GatedTerms>;

// The sizes that all rules have, and the terms of one rule.
// The state of one head is S fp32 [dk][dv]. With kLinear, z fp32 [dk] follows S. The states of the
// heads are contiguous. A backend may use another layout (Backend::state_bytes).
struct Recurrence {
  int heads = 0;
  int key_heads = 0;  // heads of q and k: head h uses h / (heads / key_heads); 0: equal to `heads`
  int dk = 0;
  int dv = 0;
  RuleTerms terms = {};

  Rule rule() const {
    return std::visit([](const auto& of_rule) { return of_rule.kRule; }, terms);
  }
  // The terms of kLinear. Null for every other rule.
  const LinearTerms* linear() const { return std::get_if<LinearTerms>(&terms); }
  int keys() const { return (key_heads > 0 ? key_heads : heads) * dk; }
  // Bytes of a slot's state: the states of all heads, one after the other.
  int64_t state_bytes() const {
    return int64_t{heads} * (int64_t{dk} * dv + (linear() != nullptr ? dk : 0)) * 4;
  }
};

// A network's activations for recur(), fp32, a row for each input.
struct RecurrenceInputs {
  View q, k;  // [inputs, keys()]
  View v;     // [inputs, heads * dv]
  // With kGated, q, k, v, `decay` and `rate` may each have n < heads heads. Head h then uses their
  // head h / (heads / n). With GatedTerms::tiled_keys it uses head h % n of q and k instead. There
  // is no k with DecayKind::kSigmoid, and no `decay` with kConstant.
  View gate = {};  // of kLinear if gated: [inputs, heads], before the sigmoid; of kMamba1: as v

  // Shape: [inputs, heads * dk] in kRwkv7, [inputs, heads] in kMamba2, [inputs, heads * dv] in
  // kMamba1, [inputs, heads * dk] or [inputs, heads] in kGated.
  View decay = {};
  View rate = {};             // of kRwkv7: [inputs, heads * dk]; of kGated: [inputs, heads]
  View turn = {};             // of kGated: [inputs, dk], the sine and cosine of each angle by which
                              // q and k are rotated; data null: none
  View first = {}, mix = {};  // of kRwkv7: [inputs, heads * dv]; data null: v stays as it is
  View bonus = {};            // of kRwkv7: [inputs, heads * dv], written
};

// The positions in a page of a cache.
inline constexpr int kPagePositions = 64;

// Softmax attention of each input to the positions so far, its own included. Query head h reads
// head h / (heads / kv_heads) of keys and values:
//   y = sum over j of p_j v_j / sum over j of p_j, p_j = exp(scale (q . k_j)).
// With angles, the first `dims` numbers of each head of q and k are rotated. Numbers i and
// i + dims / 2 are the coordinates of a point, which is rotated by angle i of the input's position.
//
// Keys and values stay in a cache, in pages of kPagePositions positions. A layer's part of a page
// is its keys [kv_heads][dk][kPagePositions], then its values [kv_heads][kPagePositions][dv].
struct Attention {
  int heads = 0;
  int kv_heads = 0;
  int dk = 0;
  int dv = 0;
  float scale = 1.0F;
  DType stored = DType::kF32;  // the type of keys and values in the cache: kF32 or kBF16
  View angles = {};            // fp32 [positions, dims]: a row has the cosines of its dims / 2
                               // angles, then their sines; data null: no rotation

  // Bytes of a page's keys, and of its keys and values together.
  int64_t key_bytes() const {
    return int64_t{kv_heads} * dk * kPagePositions * element_bytes(stored);
  }
  int64_t page_bytes() const {
    return int64_t{kv_heads} * (dk + dv) * kPagePositions * element_bytes(stored);
  }
};

// The addresses of one layer's part of each slot's pages.
struct Cache {
  States first;        // the first page
  int64_t page_bytes;  // the distance from one page to the next
  int64_t positions;   // the capacity of the cache
};

// A network's activations for attend(), fp32, a row for each input.
struct AttentionInputs {
  View q;  // [inputs, heads * dk]
  View k;  // [inputs, kv_heads * dk]
  View v;  // [inputs, kv_heads * dv]
};

struct Experts;     // kernels/experts.h
struct ExpertRoom;  // the same

enum class HeadKind : uint8_t { kCategorical, kMixtureOfLogistics };

// The numbers in a row of a head's output. Categorical: `values` logits. Mixture of logistics over
// 256 values: `components` logits, then as many means, then as many raw log-scales.
struct Head {
  HeadKind kind = HeadKind::kCategorical;
  int values = 0;
  int components = 0;
  RUNNEL_DEVICE int width() const {
    return kind == HeadKind::kCategorical ? values : 3 * components;
  }
};

// The recent values of each slot, and the penalties that are computed from them (penalties.h). Only
// categorical heads use them.
struct Recent {
  States states = {};  // where each slot keeps its recent values, i32 [room]
  int room = 0;        // how many recent values of a slot are kept; 0: none
  // The values that the rows consume. A row's values begin at index Rows::first. They are added to
  // the recent values of its slot, unless the row samples. kNoValue means the slot's pending value,
  // which is already among the recent values. Null: all rows sample.
  const int32_t* inputs = nullptr;
  const RowPenalties* penalties = nullptr;  // [rows]; null: no row has any
  const LogitBias* biases = nullptr;        // the biases of all rows' penalties

  RUNNEL_DEVICE RecentRing of(int32_t slot) const {
    std::byte* const at = states.base + slot * states.slot_bytes + states.offset;
    return {reinterpret_cast<int32_t*>(at), room};
  }
};

// What the step does with each row of a batch: it samples, or it sets a pending value. Of head_row
// and pending, exactly one is not -1.
struct Outputs {
  const int32_t* head_row;  // [rows]: the row of the head's output to sample from; -1: none
  const int32_t* pending;   // [rows]: the value that becomes pending; -1: the row samples one
  Recent recent = {};
};

class FusedSteps;

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual DeviceKind device() const = 0;

  // Names everything that decides the bits of a model packed in this precision, such as
  // "cpu/avx512/fp32/step". Compare the name, and do not parse it. Empty: this backend has no
  // products in this precision.
  virtual std::string numerics(Precision precision) const = 0;

  // Whether the bits of a sequence depend on the other rows of its batch.
  virtual bool batch_changes_bits() const { return false; }

  // The precision to serve with by default: the fastest one that keeps a model's quality.
  virtual Precision preferred() const { return Precision::kFp32; }

  // The precision for the products of a model of precision `of` that need more than bf16.
  virtual Precision precise(Precision /*of*/) const { return Precision::kFp32; }

  // Bytes of one slot's state of one layer, in the form that recur() of this backend reads and
  // writes. The state of an empty sequence is all zeros.
  virtual int64_t state_bytes(const Recurrence& recurrence) const {
    return recurrence.state_bytes();
  }

  // The parts of these bytes, for one layer, in the order of their offsets.
  virtual std::vector<StatePart> state_parts(const Recurrence& recurrence) const {
    const int64_t heads = recurrence.heads;
    const int64_t s_bytes = int64_t{recurrence.dk} * recurrence.dv * 4;
    const int64_t stride = recurrence.state_bytes() / heads;
    std::vector<StatePart> parts = {
        {"S", DType::kF32, {heads, recurrence.dk, recurrence.dv}, 0, stride}};
    if (recurrence.linear() != nullptr) {
      parts.push_back({"z", DType::kF32, {heads, recurrence.dk}, s_bytes, stride});
    }
    return parts;
  }

  // OK if networks with this recurrence run here, else FAILED_PRECONDITION with a message that says
  // what to use instead. Called once, while a model loads.
  virtual Status takes(const Recurrence& recurrence) const = 0;
  // OK if networks with this attention run here, else FAILED_PRECONDITION in the same way.
  virtual Status takes(const Attention& attention) const = 0;

  // Several calls of recur() have the same bits as one call if they divide a row's inputs only at
  // positions that are multiples of this number.
  virtual int chunk() const { return 1; }

  // Whether embed() reads tables of bf16. If not, tables are fp32.
  virtual bool takes_bf16_tables() const { return false; }

  // Whether pack() takes weights in blocks of this type, with kBlocks.
  virtual bool takes_blocks(StoredType /*type*/) const { return false; }
  // Whether embed() reads the vectors of values in blocks of this type.
  virtual bool embeds_blocks(StoredType /*type*/) const { return false; }

  // The system's estimate of the bytes that allocate() can still allocate on the device.
  virtual int64_t free_memory() const = 0;

  // Zeroed memory, aligned to 64 bytes. Throws std::bad_alloc when there is none.
  virtual Buffer allocate(int64_t bytes, Memory memory) = 0;

  // Packs a layer's weight [out, in], fp32 or bf16, and its bias, fp32 [1, out] (data null: no
  // bias). The bits of products depend on the numbers, and not on the type in which they are given.
  // A weight in bf16 stays bf16 in memory if the backend can read bf16. For kInt8 all numbers must
  // be finite. A weight may be in blocks only for kBlocks, and only if takes_blocks() is true for
  // their type. Layers that are used one after the other are best packed in that order. The backend
  // may keep the memory of a weight until the backend itself ends.
  virtual Weight pack(HostTensor weight, HostTensor bias, Precision precision) = 0;

  // Takes a run of rows, [begin, end), through a step. `lane` is the backend for this thread.
  using Pass = std::function<void(Backend& lane, int begin, int end)>;

  // Takes a batch through one step or several: calls pass(lane, begin, end) for runs of rows that
  // together cover all rows, in any order, and returns when all calls have returned.
  // - Several threads call `pass` at the same time, and more than once for the same rows. So it may
  //   only use operations of its lane, and must use the same ones in the same order each time.
  // - All inputs of a row are in one run.
  // - `work` is the number of multiply-adds of one input in the whole pass. The backend uses it to
  //   decide how to share the work. Bits do not depend on it.
  // - The values of rows.slot after the call are undefined.
  // Operations called outside run() use one thread.
  virtual void run(Rows rows, int64_t work, const Pass& pass) = 0;

  // out[i] = embedding of input i. values: i32 [1, inputs]; kNoValue means the pending value
  // of the row's slot. Input i of row r is at position control[slot].position + i - first[r].
  virtual void embed(Rows rows, View values, const Control* control, const Embedding& embedding,
                     View out) = 0;

  // Computes products with the same number of rows, in any order or at the same time. None may
  // write data that another one reads or writes. Each product has the same bits as if it were
  // computed alone. A product with a second weight has the bits of two products: first that of
  // `weight`, then that of `up`, with the first result as its `times`.
  virtual void matmuls(std::span<const Product> products) = 0;
  void matmul(View x, const Weight& weight, End end, View out) {
    const Product product = {x, &weight, end, out};
    matmuls({&product, 1});
  }

  // The memory that the backend needs for Experts::table, or an empty buffer. The weights must not
  // move while it is used.
  virtual Buffer expert_table(const Experts& /*experts*/) { return {}; }

  // out += experts.factor * y. Struct Experts defines y for a row of x [inputs, in] and its scores,
  // fp32 [inputs, experts]. out [inputs, in] is neither x nor the scores. The contents of `room`
  // are undefined before and after the call.
  virtual void experts(View x, View scores, const Experts& experts, const ExpertRoom& room,
                       View out) = 0;

  // out = norm(x + residual), or norm(x) if residual.data is null. out may be x or the residual.
  virtual void norm(View x, View residual, const Norm& norm, View out) = 0;

  // out = norm(x) with a gate. out may be x.
  virtual void gated_norm(View x, const Norm& norm, const NormGate& gate, View out) = 0;

  // out = [x + d mu_0 | x + d mu_1 | ...] with d = (the row's previous input) - x: a block of
  // columns for each row of mu [mixes, width]. x [inputs, width], out [inputs, mixes * width],
  // which may be x if there is one mix. A slot's state is its last input, fp32 [width]. Outputs and
  // states of frozen rows stay as they are.
  virtual void shift(Rows rows, View x, View mu, States states, View out) = 0;

  // Computes convolutions of the same rows, in any order or at the same time. None may write data
  // that another one reads or writes. Outputs and states of frozen rows stay as they are.
  virtual void convolves(Rows rows, std::span<const Convolved> all) = 0;
  void convolve(Rows rows, View x, const Convolution& convolution, States states, View out) {
    const Convolved one = {x, &convolution, states, out};
    convolves(rows, {&one, 1});
  }

  // The random features of queries and keys. x: fp32 [n, blocks * dk], a block for each head of the
  // queries, and then one for each head of the keys. out: fp32 [n, blocks * features.size()]. If
  // features.sigma has data, block b uses its row b % heads.
  virtual void features(View x, const RandomFeatures& features, View out) = 0;

  // Advances each row's state over the row's inputs in order, and writes the attention outputs to
  // out [inputs, heads * dv]. Outputs of frozen rows stay as they are. control[slot].position is
  // the position of the row's first input, which is the number of inputs that its state has seen.
  virtual void recur(Rows rows, const Control* control, const Recurrence& recurrence,
                     const RecurrenceInputs& inputs, States states, View out) = 0;

  // Appends the keys and values of all inputs to the rows' caches, then attends to the caches, and
  // writes the outputs to out [inputs, heads * dv]. control[slot].position is the position of the
  // row's first input. A cache's later positions are not read. Outputs and caches of frozen rows
  // stay as they are.
  //
  // Sums: positions are taken in pages, in ascending order, and pages in segments of 8. The sums of
  // segments are joined in ascending order. So a query has the same bits wherever a prompt is
  // divided.
  virtual void attend(Rows rows, const Control* control, const Attention& attention,
                      const AttentionInputs& inputs, const Cache& cache, View out) = 0;

  // Ends a step:
  // - Every row's slot has consumed its inputs: its position advances by their number.
  // - If a row samples, its next value is sampled from `head` (fp32 [n, kind.width()]), written to
  //   to.rows[r], and becomes pending, and `remaining` decreases by 1. If that makes it 0, the row
  //   freezes (rows.slot[r] = -1).
  // - For a frozen row, to.rows[r].row is set to -1.
  // - Values that become known are noted in outputs.recent.
  // - A row's penalties change the logits from which its value is chosen. They change neither
  //   `head` nor log-probabilities.
  //
  // Random numbers: Philox4x32-10, key = seed, counter = (position: 64, stream: 32, block 0: 32),
  // where position is the position of the sampled value. Word 0 chooses the category (inverse of
  // the cumulative distribution in the order of values) or the component; word 1 is the logistic
  // noise. u = ((word >> 9) + 0.5) * 2^-23.
  virtual void sample(Rows rows, Outputs outputs, const Head& kind, View head, Control* control,
                      SampledTo to) = 0;

  // log_probs[i] = log p(targets[i]) under head row i: natural logarithms, as the training loss
  // defines them. targets i32 [1, n], log_probs fp32 [1, n].
  virtual void score(const Head& kind, View head, View targets, View log_probs) = 0;

  // Kernels that run a whole network, for some shapes (kernels/fused_network.h). Null: none exist.
  virtual FusedSteps* fused() { return nullptr; }

  // Copies bytes, within the backend or between it and the host. Ranges do not overlap.
  virtual void copy(Span from, Span to) = 0;

  virtual void zero(Span bytes) = 0;

  // How many calls of run() may be enqueued at once. If it is 1, run() returns when all is done.
  virtual int launches() const { return 1; }

  // The default number of steps of a run().
  virtual int preferred_steps() const { return 1; }

  // Whether the device has finished a call of run() and everything enqueued before it, so that the
  // results in host memory can be read. `later` is the number of calls of run() since that call,
  // and is less than launches(). If it is 0, done() asks about everything enqueued so far. INTERNAL
  // if the device has failed. Everything on the device is then lost.
  virtual Result<bool> done(int /*later*/) { return true; }
};

}  // namespace runnel
