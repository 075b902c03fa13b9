// Original file: proto/coxswain/v1/control.proto


export interface Shutdown {
  'reason'?: (string);
}

export interface Shutdown__Output {
  'reason': (string);
}
