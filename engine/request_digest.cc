#include "engine/request_digest.h"

#include <openssl/evp.h>

#include <memory>
#include <type_traits>

#include "base/check.h"

namespace runnel {
namespace {

// Adds fields one after the other. Whatever varies in length is preceded by its length, so that
// different fields never give the same bytes.
class Digester {
 public:
  Digester() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    check(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "SHA-256 begins");
  }

  template <typename T>
    requires std::is_arithmetic_v<T>
  void add(T value) {
    add_bytes(&value, sizeof(value));
  }
  void add(Duration value) { add(value.count()); }
  void add(const std::string& text) {
    add(text.size());
    add_bytes(text.data(), text.size());
  }
  template <typename T>
  void add(const std::optional<T>& value) {
    add(value.has_value());
    if (value) add(*value);
  }
  void add(const std::vector<int32_t>& values) {
    add(values.size());
    add_bytes(values.data(), values.size() * sizeof(int32_t));
  }
  template <typename T>
  void add(const std::vector<T>& values) {
    add(values.size());
    for (const T& value : values) add(value);
  }
  void add(const Sampling& sampling) {
    const auto& [temperature, top_k, top_p, min_p, greedy] = sampling;
    add_all(temperature, top_k, top_p, min_p, greedy);
  }
  void add(const Delivery& delivery) {
    const auto& [max_values, max_delay] = delivery;
    add_all(max_values, max_delay);
  }
  template <typename... Fields>
  void add_all(const Fields&... fields) {
    (add(fields), ...);
  }

  RequestDigest finish() {
    RequestDigest digest;
    check(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1, "SHA-256 ends");
    return digest;
  }

 private:
  void add_bytes(const void* bytes, size_t count) {
    check(EVP_DigestUpdate(context_.get(), bytes, count) == 1, "SHA-256 goes on");
  }

  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

RequestDigest digest_of(const GenerateRequest& request) {
  // Names every field, so that a new one does not compile before it is added here.
  const auto& [caller, session, prompt, begin, samples, max_values, max_time, seed, sampling, stop,
               stop_text, ignore_eos, tokenizer, top_log_probs, keep, expected_position, request_id,
               delivery] = request;
  static_cast<void>(tokenizer);
  Digester digester;
  digester.add_all(caller.name, session, prompt, begin, samples, max_values, max_time, seed,
                   sampling, stop, stop_text, ignore_eos, top_log_probs, keep, expected_position,
                   request_id, delivery);
  return digester.finish();
}

}  // namespace runnel
