// Original file: proto/coxswain/v1/control.proto

import type { Long } from '@grpc/proto-loader';

export interface Resume {
  'received'?: (number | string | Long);
}

export interface Resume__Output {
  'received': (number);
}
