// Original file: proto/coxswain/v1/control.proto

import type { Long } from '@grpc/proto-loader';

export interface Hello {
  'protocol'?: (number);
  'buildId'?: (string);
  'numericsContract'?: (string);
  'fingerprint'?: (string);
  'host'?: (string);
  'hostId'?: (string);
  'dataHost'?: (string);
  'pid'?: (number);
  'wantedRank'?: (number);
  'cores'?: (number);
  'memoryBytes'?: (number | string | Long);
  'epochMax'?: (number | string | Long);
  'threads'?: (number);
  'session'?: (string);
  'received'?: (number | string | Long);
}

export interface Hello__Output {
  'protocol': (number);
  'buildId': (string);
  'numericsContract': (string);
  'fingerprint': (string);
  'host': (string);
  'hostId': (string);
  'dataHost': (string);
  'pid': (number);
  'wantedRank': (number);
  'cores': (number);
  'memoryBytes': (number);
  'epochMax': (number);
  'threads': (number);
  'session': (string);
  'received': (number);
}
