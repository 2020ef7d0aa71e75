/* Predicts with a model that is part of the program:
 *
 *     make MODEL=path/to/net.safetensors && ./predict 0.5 -1 2
 *
 * The numbers are one row of the model's input; the program prints one row of its output. net.h and
 * libnet.a are made of the model by mgpulua (see the Makefile). Without mgpulua or a file of the
 * model, the program runs on its own. */
#include "net.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    float in[NET_INPUT_SIZE], out[NET_OUTPUT_SIZE];
    if (argc != NET_INPUT_SIZE + 1) {
        fprintf(stderr, "usage: predict with %d numbers\n", NET_INPUT_SIZE);
        return 1;
    }
    for (int i = 0; i < NET_INPUT_SIZE; i++) in[i] = strtof(argv[i + 1], NULL);
    if (net_predict(in, out) != NET_OK) {
        fprintf(stderr, "predict: %s\n", net_error());
        return 1;
    }
    for (int i = 0; i < NET_OUTPUT_SIZE; i++) printf("%.9g\n", out[i]);
    net_close();
    return 0;
}
