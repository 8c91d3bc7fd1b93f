// A WebSocket server that echoes every message compressed, on uWebSockets' own settings but for the
// limits. Its second argument is the bits of both windows, whose contexts are kept; 0: one compressor
// and one decompressor for all connections, and no context.
#include "App.h"

#include <cstdlib>

int main(int, char **arguments) {
    struct Nothing {};
    int options = uWS::SHARED_COMPRESSOR | uWS::SHARED_DECOMPRESSOR;
    switch (atoi(arguments[2])) {
    case 9:
        options = uWS::DEDICATED_COMPRESSOR_4KB | uWS::DEDICATED_DECOMPRESSOR_512B;
        break;
    case 12:
        options = uWS::DEDICATED_COMPRESSOR_32KB | uWS::DEDICATED_DECOMPRESSOR_4KB;
        break;
    case 15:
        options = uWS::DEDICATED_COMPRESSOR_256KB | uWS::DEDICATED_DECOMPRESSOR_32KB;
        break;
    }
    uWS::App()
        .ws<Nothing>("/*", {
            .compression = uWS::CompressOptions(options),
            .maxPayloadLength = 16 * 1024 * 1024,
            .idleTimeout = 960,
            .maxBackpressure = 64 * 1024 * 1024,
            .sendPingsAutomatically = false,
            .message = [](auto *socket, std::string_view message, uWS::OpCode code) {
                socket->send(message, code, true);
            },
        })
        .listen("127.0.0.1", atoi(arguments[1]), [](auto *listener) {
            if (!listener) {
                exit(1);
            }
        })
        .run();
}
