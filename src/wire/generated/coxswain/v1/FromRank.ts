// Original file: proto/coxswain/v1/control.proto

import type { Long } from '@grpc/proto-loader';

export interface FromRank {
  'sequence'?: (number | string | Long);
  'mac'?: (Buffer | Uint8Array | string);
  'body'?: (Buffer | Uint8Array | string);
}

export interface FromRank__Output {
  'sequence': (number);
  'mac': (Buffer);
  'body': (Buffer);
}
