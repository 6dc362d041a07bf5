// A record processor on aws-kcl, the KCL for Node.js: it prints what amazon_kclpy's sample prints, and checkpoints once in
// 300 records. The argument: the package, "aws-kcl" or "aws-kcl-1", of which the latter has KCL 1's interface.
'use strict';

const kcl = require(process.argv[2]);
const EVERY = 300;
let count = 0;

function checkpoint(checkpointer, done) {
  checkpointer.checkpoint((error) => {
    if (error) process.stderr.write(`checkpoint: ${error}\n`);
    done();
  });
}

const processor = {
  initialize(input, done) {
    done();
  },
  processRecords(input, done) {
    let text = '';
    for (const record of input.records) {
      const sub = record.subSequenceNumber || 0;
      text += `Record (Partition Key: ${record.partitionKey}, Sequence Number: ${record.sequenceNumber}, ` +
        `Subsequence Number: ${sub}, Data Size: ${Buffer.from(record.data, 'base64').length}\n`;
    }
    process.stderr.write(text);
    count += input.records.length;
    if (count < EVERY) return done();
    count = 0;
    return checkpoint(input.checkpointer, done);
  },
  shutdownRequested(input, done) {
    checkpoint(input.checkpointer, done);
  },
};
if (process.argv[2] === 'aws-kcl-1') {
  processor.shutdown = (input, done) => (input.reason === 'TERMINATE' ? checkpoint(input.checkpointer, done) : done());
} else {
  processor.leaseLost = (input, done) => done();
  processor.shardEnded = (input, done) => checkpoint(input.checkpointer, done);
}
kcl(processor).run();
