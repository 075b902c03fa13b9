// Original file: proto/coxswain/v1/control.proto

import type { Long } from '@grpc/proto-loader';

export interface ToRank {
  'sequence'?: (number | string | Long);
  'mac'?: (Buffer | Uint8Array | string);
  'body'?: (Buffer | Uint8Array | string);
}

export interface ToRank__Output {
  'sequence': (number);
  'mac': (Buffer);
  'body': (Buffer);
}
