#!/usr/bin/env node
// The `cox` program: parses the command line, runs one command, sets the exit code.
import yargs, { type Argv } from 'yargs';
import { hideBin } from 'yargs/helpers';
import { CoxswainError } from '../base/errors.ts';
import { benchCommand } from './commands/bench.ts';
import { chatCommand } from './commands/chat.ts';
import { coordinatorCommand } from './commands/coordinator.ts';
import { demoCommand } from './commands/demo.ts';
import { detokenizeCommand } from './commands/detokenize.ts';
import { doctorCommand } from './commands/doctor.ts';
import { logitsCommand } from './commands/logits.ts';
import { perplexityCommand } from './commands/perplexity.ts';
import { planCommand } from './commands/plan.ts';
import { pullCommand } from './commands/pull.ts';
import { quantizeCommand } from './commands/quantize.ts';
import { rankCommand } from './commands/rank.ts';
import { runCommand } from './commands/run.ts';
import { tokenizeCommand } from './commands/tokenize.ts';
import { upCommand } from './commands/up.ts';
import { endProgram, reportFailure, watchOutput } from './terminal.ts';
import { VERSION } from './version.ts';

const COLUMNS_MAX = 110;

function program(words: readonly string[]): Argv {
  return yargs([...words])
    .scriptName('cox')
    .usage('$0 COMMAND: one language model over several processes')
    .version(VERSION)
    .parserConfiguration({
      'camel-case-expansion': false,
      'boolean-negation': false,
      'duplicate-arguments-array': false,
    })
    .command(upCommand)
    .command(coordinatorCommand)
    .command(rankCommand)
    .command(runCommand)
    .command(chatCommand)
    .command(pullCommand)
    .command(planCommand)
    .command(quantizeCommand)
    .command(doctorCommand)
    .command(tokenizeCommand)
    .command(detokenizeCommand)
    .command(logitsCommand)
    .command(perplexityCommand)
    .command(benchCommand)
    .command(demoCommand)
    .demandCommand(1, 'Name a command.')
    .strict()
    .wrap(Math.min(COLUMNS_MAX, process.stdout.columns ?? COLUMNS_MAX))
    .exitProcess(false)
    .fail((message: string | undefined, error: Error | undefined) => {
      throw error ?? new CoxswainError('USAGE_INVALID', `${message} See: cox --help`);
    });
}

watchOutput();
try {
  await program(hideBin(process.argv)).parseAsync();
} catch (thrown) {
  reportFailure(thrown);
}
endProgram();
