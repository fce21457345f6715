# SPDX-License-Identifier: Apache-2.0
"""The options of Nova's scheduler: registration, descriptions, values."""

from oslo_config import cfg

from dmclone_driver.scheduler import opts
from tests.unit import base


class OptionsTestCase(base.PlainTestCase):

    def test_described(self):
        for option in opts.SCHEDULER_OPTS:
            self.assertTrue(option.name.startswith('dmclone_'), option.name)
            self.assertTrue(option.help.endswith('.'), option.name)

    def test_sample_file(self):
        self.assertEqual([(opts.GROUP, opts.SCHEDULER_OPTS)],
                         opts.list_opts())

    def test_values(self):
        conf = cfg.ConfigOpts()
        conf.register_opts(opts.SCHEDULER_OPTS, group=opts.GROUP)
        conf([])
        for name, value in (('dmclone_weight_multiplier', -1),
                            ('dmclone_cache_time', -1),
                            ('dmclone_cinder_timeout', 0)):
            self.assertRaises(ValueError, conf.set_override, name, value,
                              group=opts.GROUP)
        # A request that Cinder does not answer must not hold up the others.
        self.assertLess(conf[opts.GROUP].dmclone_cinder_timeout, 60)
