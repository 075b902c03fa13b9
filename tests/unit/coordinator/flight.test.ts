import { describe, expect, test } from 'vitest';
import type { StepResult } from '../../../src/base/step-record.ts';
import { Flight, type FlightStep, type Ticket } from '../../../src/coordinator/core/flight.ts';
import { type RequestState, Sequence } from '../../../src/coordinator/core/request.ts';
import { generate } from '../../sim/requests.ts';

function ticket(): Ticket {
  const request: RequestState = {
    id: 'a',
    request: generate('a', [1], 1),
    order: 0,
    arrivedAt: 0,
    sequences: [],
    unfinished: 1,
    startedAt: null,
    strikes: 0,
    isOver: false,
  };
  const lease = { blocks: [], nodes: [], root: null, indexed: 0 };
  const live = { slot: 0, lease, next: 0, lastOutput: null, lastStep: 0, stepsInFlight: 1 };
  return { sequence: new Sequence(request, 0), live, pos: 0 };
}

function step(number: number, outputs: number, ranks: number): FlightStep {
  return {
    step: number,
    tickets: Array.from({ length: outputs }, ticket),
    members: [],
    load: { decodeRows: outputs, prefillRows: 0 },
    sentAt: 0,
    deadlineAt: 1,
    answersLeft: ranks,
    computeUsMax: 0,
    outputsTaken: false,
  };
}

function answer(number: number, outputs: number, computeUs = 5): StepResult {
  const skipped = { want: 'token', skipped: true } as const;
  const list = Array.from({ length: outputs }, () => skipped);
  return { epoch: 1, step: number, outputs: list, computeUs, waitUs: 0 };
}

describe('steps in flight', () => {
  test('a step leaves when every rank has answered, and the slowest one counts', () => {
    const flight = new Flight(2, 1, 3);
    flight.launch(step(1, 1, 2));
    expect(flight.land(1, answer(1, 1, 7))).toMatchObject({ kind: 'answer', hasOutputs: true });
    expect(flight.retire()).toBeNull();
    expect(flight.missing(1)).toEqual([0]);
    expect(flight.land(0, answer(1, 0, 9))).toMatchObject({ kind: 'answer', hasOutputs: false });
    expect(flight.retire()).toMatchObject({ step: 1, computeUsMax: 9 });
    expect(flight.retire()).toBeNull();
  });

  test('no more than the stages and one are under way', () => {
    const flight = new Flight(1, 1, 2);
    flight.launch(step(1, 0, 1));
    expect(flight.hasRoom).toBe(true);
    flight.launch(step(2, 0, 1));
    expect(flight.hasRoom).toBe(false);
  });

  test('repeated answers are known, impossible ones are told', () => {
    const flight = new Flight(2, 1, 3);
    flight.launch(step(1, 1, 2));
    flight.land(0, answer(1, 1));
    expect(flight.land(0, answer(1, 1))).toEqual({ kind: 'duplicate' });
    expect(flight.land(1, answer(2, 0))).toMatchObject({
      message: expect.stringContaining('1 was due'),
    });
    expect(flight.land(1, answer(1, 1))).toMatchObject({
      message: expect.stringContaining('two ranks'),
    });
    expect(flight.land(7, answer(1, 0))).toMatchObject({
      message: expect.stringContaining('not part'),
    });
    expect(flight.land(0, answer(2, 0))).toMatchObject({
      message: expect.stringContaining('never sent'),
    });
  });

  test('outputs that overtake those of an earlier step are an error', () => {
    const flight = new Flight(2, 1, 3);
    flight.launch(step(1, 1, 2));
    flight.launch(step(2, 1, 2));
    flight.land(1, answer(1, 0));
    expect(flight.land(1, answer(2, 1))).toMatchObject({
      message: expect.stringContaining('before those of 1'),
    });
  });

  test('outputs that nobody answers are an error, not a wait for ever', () => {
    const flight = new Flight(2, 1, 3);
    flight.launch(step(1, 1, 2));
    flight.land(0, answer(1, 0));
    expect(flight.land(1, answer(1, 0))).toMatchObject({ kind: 'broken' });
  });
});
