#include "client/handshake.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <array>
#include <csignal>
#include <ctime>

#include "base/openssl.h"
#include "base/text.h"

namespace runnel {
namespace {

using openssl::Bio, openssl::Connection, openssl::Context;
using std::chrono::steady_clock;

constexpr std::array<unsigned char, 3> kHttp2 = {2, 'h', '2'};  // in the form of ALPN
constexpr int kAlerts = SSL_AD_REASON_OFFSET;  // from here on, the reasons are the peer's alerts

// While the object exists, a write of this thread to a closed connection fails, and does not kill
// the process. OpenSSL itself does not prevent SIGPIPE.
class PipeSignalHeld {
 public:
  PipeSignalHeld() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~PipeSignalHeld() {
    constexpr timespec kNow = {};
    sigtimedwait(&signal_, nullptr, &kNow);  // takes the signal that has come
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  PipeSignalHeld(const PipeSignalHeld&) = delete;
  PipeSignalHeld& operator=(const PipeSignalHeld&) = delete;

 private:
  sigset_t signal_{}, before_{};
};

Context make_context() {
  Context context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_alpn_protos(context.get(), kHttp2.data(), kHttp2.size());
  return context;
}

// Errors are ignored: read_access() has read the same files and found them valid.
void trust(const Access& access, SSL_CTX* context) {
  SSL_CTX_load_verify_file(context, access.authorities_file.c_str());
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  if (access.certificate_file.empty()) return;
  SSL_CTX_use_certificate_chain_file(context, access.certificate_file.c_str());
  SSL_CTX_use_PrivateKey_file(context, access.key_file.c_str(), SSL_FILETYPE_PEM);
}

// Called before and after each read and write. Fails a read after the time in the callback's
// argument.
long check_time(BIO* bio, int operation, const char*, size_t, int, long, int result, size_t*) {
  const auto* until = reinterpret_cast<const steady_clock::time_point*>(BIO_get_callback_arg(bio));
  return operation == BIO_CB_READ && steady_clock::now() >= *until ? -1 : result;
}

// No read begins after `until`, which must outlive the connection.
Connection connection_on(int socket, SSL_CTX* context, const steady_clock::time_point& until) {
  Connection connection(SSL_new(context));
  SSL_set_fd(connection.get(), socket);
  BIO* bio = SSL_get_rbio(connection.get());
  BIO_set_callback_ex(bio, check_time);
  BIO_set_callback_arg(bio, reinterpret_cast<char*>(const_cast<steady_clock::time_point*>(&until)));
  ERR_clear_error();
  return connection;
}

// "DNS:localhost, IP Address:127.0.0.1".
std::string names_of(const X509* certificate) {
  const int at = X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1);
  if (at < 0) return "none";
  const Bio bio(BIO_new(BIO_s_mem()));
  X509V3_EXT_print(bio.get(), X509_get_ext(certificate, at), 0, 0);
  return printable(openssl::written(bio), 200);
}

// The data that the server shows during a handshake.
struct Seen {
  std::string names;   // in the server's certificate
  bool asked = false;  // whether the server asked for a client certificate
};

// Replaces the library's check, and calls it.
int check_certificate(X509_STORE_CTX* chain, void* seen) {
  static_cast<Seen*>(seen)->names = names_of(X509_STORE_CTX_get0_cert(chain));
  return X509_verify_cert(chain);
}

// Called when the server asks for a certificate. A certificate of this client, if any, is already
// set.
int note_asked(SSL*, void* seen) {
  static_cast<Seen*>(seen)->asked = true;
  return 1;
}

std::string explain_certificate(long result, const Access& access, const Seen& seen) {
  const std::string reason = X509_verify_cert_error_string(result);
  switch (result) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "its certificate is not for " + quote(access.name, 200) +
             ", and has these names: " + seen.names +
             "; call it by one of them, or say with --tls-name which one it has";
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "its certificate cannot be used now: " + reason +
             "; it needs a new one, or a clock is wrong";
    default:
      return "its certificate is not signed by an authority in " + access.authorities_file + ": " +
             reason + "; give the right one with --tls-ca FILE";
  }
}

// Explains a handshake that failed, or a connection that the server closed after it. `asked`: the
// server wanted a certificate of the client. (A gRPC server closes without a message.)
std::string explain_error(const Access& access, bool asked) {
  const unsigned long error = ERR_peek_last_error();
  const int reason = ERR_GET_REASON(error);
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST) {
    return "it does not speak TLS; leave out --tls and what belongs to it, or call the port that "
           "does";
  }
  if (asked && access.certificate_file.empty()) {
    return "it wants a certificate of its clients; give one with --tls-cert and --tls-key";
  }
  if (asked) {
    return "it does not take the certificate in " + access.certificate_file + " (" +
           access.identity.subject +
           "); is it signed by an authority of the server's --tls-client-ca?";
  }
  const char* words = ERR_reason_error_string(error);
  return std::string("the TLS handshake failed: ") +
         (words == nullptr ? "the connection was closed" : words);
}

}  // namespace

bool speaks_tls(int socket, std::chrono::milliseconds at_most) {
  const PipeSignalHeld held;
  const Context context = make_context();
  const auto until = steady_clock::now() + at_most;
  const Connection connection = connection_on(socket, context.get(), until);
  const bool shaken = SSL_connect(connection.get()) == 1;
  const int reason = ERR_GET_REASON(ERR_peek_last_error());
  ERR_clear_error();
  return shaken || reason >= kAlerts;
}

Status explain_handshake(int socket, const Access& access, std::chrono::milliseconds at_most) {
  const PipeSignalHeld held;
  const Context context = make_context();
  trust(access, context.get());
  Seen seen;
  SSL_CTX_set_cert_verify_callback(context.get(), check_certificate, &seen);
  SSL_CTX_set_cert_cb(context.get(), note_asked, &seen);
  const auto until = steady_clock::now() + at_most;
  const Connection connection = connection_on(socket, context.get(), until);
  X509_VERIFY_PARAM* checks = SSL_get0_param(connection.get());
  if (X509_VERIFY_PARAM_set1_ip_asc(checks, access.name.c_str()) != 1) {
    X509_VERIFY_PARAM_set1_host(checks, access.name.c_str(), 0);
    SSL_set_tlsext_host_name(connection.get(), access.name.c_str());
  }
  ERR_clear_error();
  const bool shaken = SSL_connect(connection.get()) == 1;
  std::string why;
  const long result = SSL_get_verify_result(connection.get());
  if (!shaken && result != X509_V_OK) {
    why = explain_certificate(result, access, seen);
  } else {
    // In TLS 1.3, the server rejects a client's certificate only after the client's side of the
    // handshake.
    char byte = 0;
    const bool talks = shaken && SSL_read(connection.get(), &byte, 1) == 1;
    why = talks ? "it speaks TLS, but not gRPC; is that the port of 'runnel serve'?"
                : explain_error(access, seen.asked);
  }
  ERR_clear_error();
  return {Code::kUnavailable, "no call reaches " + access.address + ": " + why};
}

}  // namespace runnel
