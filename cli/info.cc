#include <map>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "client/client.h"
#include "models/bundle/bundle.h"
#include "models/bundle/config.h"
#include "models/bundle/gguf.h"
#include "models/state/file.h"
#include "models/template/load_template.h"

namespace runnel {
namespace {

using Lines = std::vector<std::pair<std::string, std::string>>;

void print_lines(const Lines& lines, Console& console) {
  size_t width = 0;
  for (const auto& [name, text] : lines) width = std::max(width, name.size());
  for (const auto& [name, text] : lines) {
    console.out << name << std::string(width + 2 - name.size(), ' ') << tame(text) << '\n';
  }
  console.out.flush();
}

std::string exact_bytes(int64_t bytes) {
  const std::string exact = with_commas(bytes) + " bytes";
  return bytes < 1024 ? exact : exact + " (" + byte_count(bytes) + ")";
}

// The bytes of a session's state: the recurrent part, and the part for each position.
std::string state_text(int64_t bytes, int64_t position_bytes, int64_t positions) {
  const std::string all = exact_bytes(bytes) + " per session";
  if (position_bytes == 0) return all;
  const int64_t pages = (positions + kPagePositions - 1) / kPagePositions;
  const int64_t recurrent = bytes - pages * kPagePositions * position_bytes;
  return all + ": " + (recurrent > 0 ? with_commas(recurrent) + " and " : "") +
         with_commas(position_bytes) + " for each of " + with_commas(positions) +
         " positions, all of it taken when a session begins";
}

// The bytes that a server with the default settings adds to a session's state.
std::string added_text(const Spec& spec) {
  if (spec.head.kind != HeadKind::kCategorical) return "";
  return "; by default, a server adds " + with_commas(limits::kRecentValues.default_value * 4) +
         " bytes for the last values (limits.recent_values)";
}

std::string parameters_text(const Spec& spec) {
  const std::string all = with_commas(spec.parameters());
  const int64_t active = spec.active_parameters();
  return active == spec.parameters() ? all : all + ", of which a value uses " + with_commas(active);
}

// The rows for a spec, whether it comes from a directory or from a server.
Lines spec_lines(const Spec& spec) {
  Lines lines = {{"model", spec.name}};
  if (spec.image) {
    lines.emplace_back("draws", "images of " + std::to_string(spec.image->height) + " x " +
                                    std::to_string(spec.image->width) + ", " +
                                    (spec.image->channels == 1 ? "grey" : "red green blue"));
  } else {
    const std::string values = std::to_string(spec.vocabulary);
    lines.emplace_back("draws", spec.text == TextKind::kNone ? "sequences of " + values + " symbols"
                                                             : "text, over " + values + " values");
  }
  for (auto& row : description_of(spec)) lines.push_back(std::move(row));
  lines.emplace_back("parameters", parameters_text(spec));
  lines.emplace_back("state",
                     state_text(spec.state_bytes(), spec.position_bytes(), spec.positions));
  return lines;
}

// How many tensors a bundle has of each type: "97 of Q4_0, 12 of F32".
std::string types_of(const Bundle& bundle) {
  std::map<StoredType, int> counts;
  for (const auto& [name, tensor] : bundle.tensors) ++counts[tensor.type];
  std::string text;
  for (const auto& [type, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " of " + format_of(type).name;
  }
  return text;
}

// Parses the text of a spec, from a bundle or from a server of any version.
Result<Json> spec_json(const std::string& text) {
  return parse_json(text, "the spec", {kMaxConfigBytes, kMaxConfigBytes, 16});
}

// The name of a bundle's chat template, or why the bundle is served without chat.
std::string chat_text(const Bundle& bundle) {
  if (bundle.tokenizer == nullptr) return "none: values are not text";
  const auto format = load_chat_format(bundle.directory, bundle.tokenizer);
  return format.ok() ? (*format)->name() : "none: " + format.status().message();
}

int info_of_bundle(const std::string& directory, const InfoOptions& options, Console& console) {
  const Result<Bundle> bundle = load_bundle(directory);
  if (!bundle.ok()) return fail(console, kExitUsage, bundle.status().message());
  if (const Status s = bundle->check_numbers(); !s.ok()) {
    return fail(console, kExitUsage, s.message());
  }
  const Result<std::string> weights = bundle->digest();
  if (!weights.ok()) return fail(console, kExitUsage, weights.status().message());
  if (options.json) {
    const OrderedJson out = {{"directory", directory},
                             {"name", bundle->spec.name},
                             {"parameters", bundle->spec.parameters()},
                             {"state_bytes", bundle->spec.state_bytes()},
                             {"position_bytes", bundle->spec.position_bytes()},
                             {"max_length", bundle->spec.max_length()},
                             {"head", head_kind_name(bundle->spec.head.kind)},
                             {"chat", chat_text(*bundle)},
                             {"weight_digest", *weights},
                             {"digest", model_digest(bundle->spec, *weights)},
                             {"spec", *spec_json(spec_to_json(bundle->spec))}};
    console.out << json_text(out) << std::endl;
    return kExitOk;
  }
  Lines lines = spec_lines(bundle->spec);
  lines.back().second += added_text(bundle->spec);
  lines.emplace_back("chat", chat_text(*bundle));
  if (is_gguf(directory) || bundle->has_blocks()) lines.emplace_back("tensors", types_of(*bundle));
  lines.emplace_back("weights", "sha-256 " + *weights);
  lines.emplace_back("digest", model_digest(bundle->spec, *weights));
  print_lines(lines, console);
  return kExitOk;
}

// The same for a server's model; "" if an older server does not tell.
std::string chat_text(const v1::ModelInfo& model) {
  if (model.chat().has_missing()) return "none: " + model.chat().missing();
  return model.chat().template_name();
}

OrderedJson model_json(const v1::ModelInfo& model) {
  OrderedJson out = {{"name", model.name()},
                     {"parameters", model.parameters()},
                     {"state_bytes", model.state_bytes()},
                     {"position_bytes", model.position_bytes()},
                     {"sessions", model.sessions()},
                     {"sessions_free", model.sessions_free()},
                     {"backend", model.backend()},
                     {"numerics", model.numerics()},
                     {"instructions", model.instructions()},
                     {"weight_digest", model.weight_digest()},
                     {"vocabulary", model.vocabulary()},
                     {"max_length", model.max_length()},
                     {"head", model.head()}};
  for (const std::string& alias : model.aliases()) out["aliases"].push_back(alias);
  if (model.has_chat()) out["chat"] = chat_text(model);
  const auto spec = parse_spec(model.spec_json(), "the server's description");
  if (spec.ok()) out["digest"] = model_digest(*spec, model.weight_digest());
  if (const auto json = spec_json(model.spec_json()); json.ok()) out["spec"] = *json;
  return out;
}

Lines model_lines(const v1::ModelInfo& model) {
  Result<Spec> spec = parse_spec(model.spec_json(), "the server's description");
  Lines lines;
  if (spec.ok()) {
    if (spec->most_positions > 0) spec->positions = model.max_length() - 1;
    lines = spec_lines(*spec);
    lines.back().second = state_text(model.state_bytes(), model.position_bytes(), spec->positions);
  } else {
    lines = {{"model", model.name()},
             {"head", model.head()},
             {"parameters", with_commas(model.parameters())},
             {"state", exact_bytes(model.state_bytes()) + " per session"}};
  }
  lines.front().second = model.name();
  for (const std::string& alias : model.aliases()) lines.front().second += ", " + alias;
  if (model.has_chat()) lines.emplace_back("chat", chat_text(model));
  lines.emplace_back("sessions", with_commas(model.sessions()) + " fit, " +
                                     with_commas(model.sessions_free()) + " are free");
  lines.emplace_back("backend", model.backend());
  lines.emplace_back("numerics", model.numerics());
  if (!model.instructions().empty()) lines.emplace_back("instructions", model.instructions());
  lines.emplace_back("weights", "sha-256 " + model.weight_digest());
  if (spec.ok()) lines.emplace_back("digest", model_digest(*spec, model.weight_digest()));
  return lines;
}

int info_of_server(const InfoOptions& options, Console& console) {
  Client client(options.server, Seconds(options.timeout));
  const Interrupt interrupt([&] { client.cancel(); });
  if (Status usable = client.open(); !usable.ok()) {
    return fail(console, kExitUsage, usable.message());
  }
  Status status = client.connect(Seconds(options.timeout));
  v1::ListModelsResponse models;
  if (status.ok()) status = client.list_models(models);
  if (interrupt.fired()) return fail(console, kExitInterrupted, "interrupted");
  if (!status.ok()) return fail(console, kExitFailed, call_error(status));
  if (options.json) {
    OrderedJson out = {{"server", options.server.address}, {"models", OrderedJson::array()}};
    for (const v1::ModelInfo& model : models.models()) out["models"].push_back(model_json(model));
    console.out << json_text(out) << std::endl;
    return kExitOk;
  }
  if (models.models().empty()) console.out << "the server has no model" << std::endl;
  bool first = true;
  for (const v1::ModelInfo& model : models.models()) {
    if (!std::exchange(first, false)) console.out << '\n';
    print_lines(model_lines(model), console);
  }
  return kExitOk;
}

}  // namespace

int run_info(const InfoOptions& options, Console& console) {
  if (options.bundle) return info_of_bundle(*options.bundle, options, console);
  return info_of_server(options, console);
}

}  // namespace runnel
