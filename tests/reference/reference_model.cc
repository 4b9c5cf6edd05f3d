#include "tests/reference/reference_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace runnel::reference {

double phi(FeatureMap map, double x) {
  if (map == FeatureMap::kElu) return x > 0 ? x + 1 : std::exp(x);
  return map == FeatureMap::kRelu ? std::max(x, 0.0) : x;
}

namespace {

double square_of(const Vector& x) {
  double square = 0;
  for (const double value : x) square += value * value;
  return square;
}

}  // namespace

Vector random_features(const RandomFeatures& map, Vector x, const float* omega,
                       const float* sigma) {
  const double size = std::max(std::sqrt(square_of(x)), 1e-12);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] *= std::sqrt(static_cast<double>(map.temperature));
    if (sigma != nullptr) x[i] *= sigma[i] / size;
  }
  const int projections = map.projections();
  Vector u(projections, 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    for (int j = 0; j < projections; ++j) u[j] += x[i] * omega[i * projections + j];
  }
  Vector low;
  Vector high;
  const bool smoothed = map.map == FeatureMap::kSmoothedFourier;
  const double scale = std::sqrt(2.0 / (smoothed ? map.count - 1 : map.count));
  const double offset = square_of(x) / 2 + std::log(map.count) / 2;
  for (const double at : u) {
    if (map.map == FeatureMap::kGeneralized) {
      low.push_back(activate(map.kernel, at));
    } else if (map.map == FeatureMap::kFavor) {
      low.push_back(std::exp(at - offset));
      high.push_back(std::exp(-at - offset));
    } else {
      low.push_back(scale * std::cos(at));
      high.push_back(scale * std::sin(at));
    }
  }
  low.insert(low.end(), high.begin(), high.end());
  if (smoothed) low.push_back(map.smoothing);
  return low;
}

Vector linear(const Vector& x, const std::vector<float>& weight, const std::vector<float>& bias) {
  const size_t out = weight.size() / x.size();
  Vector y(out);
  for (size_t i = 0; i < out; ++i) {
    y[i] = bias.empty() ? 0.0 : bias[i];
    for (size_t k = 0; k < x.size(); ++k) y[i] += weight[i * x.size() + k] * x[k];
  }
  return y;
}

Vector layer_norm(const Vector& x, const std::vector<float>& scale, const std::vector<float>& shift,
                  double eps) {
  const double width = static_cast<double>(x.size());
  double mean = 0;
  for (const double value : x) mean += value / width;
  double variance = 0;
  for (const double value : x) variance += (value - mean) * (value - mean) / width;
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = (x[i] - mean) / std::sqrt(variance + eps) * scale[i] + shift[i];
  }
  return y;
}

double activate(Activation activation, double x) {
  if (activation == Activation::kRelu) return x > 0 ? x : 0;
  if (activation == Activation::kGelu) return x * std::erfc(-x / std::sqrt(2.0)) / 2;
  return x;
}

Vector attention_step(const Vector& q, const Vector& k, const Vector& v, std::optional<double> gate,
                      double eps, HeadState& state) {
  const double keep = gate.value_or(1.0);
  const double take = gate.has_value() ? 1.0 - *gate : 1.0;
  const size_t dv = v.size();
  Vector y(dv, 0.0);
  double normalizer = 0;
  for (size_t i = 0; i < k.size(); ++i) {
    state.z[i] = keep * state.z[i] + take * k[i];
    normalizer += q[i] * state.z[i];
    for (size_t j = 0; j < dv; ++j) {
      state.s[i * dv + j] = keep * state.s[i * dv + j] + take * k[i] * v[j];
      y[j] += q[i] * state.s[i * dv + j];
    }
  }
  for (double& value : y) value /= normalizer + eps;
  return y;
}

double sinusoid(int64_t position, int column, int width) {
  const int pair = column / 2;
  const double frequency = std::pow(10000.0, -2.0 * pair / width);
  const double angle = static_cast<double>(position) * frequency;
  return column % 2 == 0 ? std::sin(angle) : std::cos(angle);
}

Model::Model(Spec spec, Tensors tensors)
    : spec_(std::move(spec)),
      sizes_(std::get<LinearTransformerSpec>(spec_.model)),
      tensors_(std::move(tensors)) {}

State Model::fresh() const {
  const HeadState head = {
      Vector(static_cast<size_t>(sizes_.feature_size()) * sizes_.value_size, 0.0),
      Vector(sizes_.feature_size(), 0.0)};
  State state;
  state.layers.assign(sizes_.layers, std::vector<HeadState>(sizes_.heads, head));
  return state;
}

const std::vector<float>& Model::tensor(const std::string& name) const {
  const auto it = tensors_.find(name);
  check(it != tensors_.end(), name.c_str());
  return it->second;
}

Vector Model::project(const std::string& name, const Vector& x) const {
  return linear(x, tensor(name + ".weight"), tensor(name + ".bias"));
}

Vector Model::norm(const std::string& name, const Vector& x) const {
  return layer_norm(x, tensor(name + ".weight"), tensor(name + ".bias"), sizes_.norm_eps);
}

Vector Model::embed(int32_t value, int64_t position) const {
  const auto& values = tensor("value_embedding.weight");
  const auto begin = values.begin() + int64_t{value} * sizes_.value_width;
  Vector x(begin, begin + sizes_.value_width);
  for (int c = 0; c < sizes_.position_width(); ++c) {
    const double at = sizes_.position == PositionKind::kTable
                          ? tensor("pos_embedding.pe").at(position * sizes_.position_width() + c)
                          : sinusoid(position, c, sizes_.position_width());
    if (sizes_.combine == Combine::kAdd) {
      x[c] += at;
    } else {
      x.push_back(at);
    }
  }
  return x;
}

// phi of a query or key of one head.
Vector Model::features(const std::string& layer, const Vector& x, int head) const {
  if (is_random(sizes_.feature_map)) {
    const std::string map = layer + ".attention.inner_attention.feature_map";
    const float* const sigma =
        sizes_.normalize ? tensor(map + ".sigma").data() + head * x.size() : nullptr;
    return random_features(sizes_.features, x, tensor(map + ".omega").data(), sigma);
  }
  Vector y = x;
  for (double& value : y) value = phi(sizes_.feature_map, value);
  return y;
}

Vector Model::attention(const std::string& layer, const Vector& x,
                        std::vector<HeadState>& heads) const {
  const Vector q = project(layer + ".attention.query_projection", x);
  const Vector k = project(layer + ".attention.key_projection", x);
  const Vector v = project(layer + ".attention.value_projection", x);
  const auto part = [](const Vector& all, int head, int size) {
    return Vector(all.begin() + int64_t{head} * size, all.begin() + int64_t{head + 1} * size);
  };
  const Vector gates = sizes_.gate ? project(layer + ".attention.gate", x) : Vector();
  Vector joined;
  for (int h = 0; h < sizes_.heads; ++h) {
    std::optional<double> gate;
    if (sizes_.gate) gate = 1 / (1 + std::exp(-gates[h]));
    const Vector y =
        attention_step(features(layer, part(q, h, sizes_.query_size), h),
                       features(layer, part(k, h, sizes_.query_size), h),
                       part(v, h, sizes_.value_size), gate, sizes_.attention_eps, heads[h]);
    joined.insert(joined.end(), y.begin(), y.end());
  }
  return project(layer + ".attention.out_projection", joined);
}

Vector Model::forward(int32_t value, State& state) const {
  const auto sum = [](Vector a, const Vector& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  };
  Vector x = embed(value, state.position);
  for (int i = 0; i < sizes_.layers; ++i) {
    const std::string layer = "transformer.layers." + std::to_string(i);
    x = norm(layer + ".norm1", sum(x, attention(layer, x, state.layers[i])));
    Vector hidden = project(layer + ".linear1", x);
    for (double& h : hidden) h = activate(sizes_.activation, h);
    x = norm(layer + ".norm2", sum(x, project(layer + ".linear2", hidden)));
  }
  if (sizes_.final_norm) x = norm("transformer.norm", x);
  ++state.position;
  return project("predictor", x);
}

}  // namespace runnel::reference
